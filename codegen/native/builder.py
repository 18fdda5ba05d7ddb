"""Builds one nest: typed operations on values, each emitted once (value numbering) and placed in its row or its strip.

Operations on uniform values go to the row before the current strip; the others belong to the current strip and cannot
be used after it. Constants are folded where this costs no rounding.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from .loops import COMPARISONS, FLOATS, Access, Do, Fold, Function, Lane, Nest, Node, Row, Step, Store, Strip

_FORMATS = {Lane.F32: "<f", Lane.F64: "<d"}


def bits_of(value: float, lane: Lane) -> int:
    """Returns the bits of a number of this type, rounded to it. Integers wrap."""
    if lane.is_float:
        try:
            data = struct.pack(_FORMATS[lane], value)
        except OverflowError:
            data = struct.pack(_FORMATS[lane], float("inf") if value > 0 else float("-inf"))
        return int.from_bytes(data, "little")
    return int(value) & ((1 << lane.bits) - 1)


def number_of(bits: int, lane: Lane) -> float:
    """Returns the number with these bits; integers are signed."""
    if lane.is_float:
        return struct.unpack(_FORMATS[lane], bits.to_bytes(lane.bits // 8, "little"))[0]
    return bits - (1 << lane.bits) if lane is not Lane.MASK and bits >> (lane.bits - 1) else bits


class Builder:
    """Collects the values of one nest. `first` numbers the first value."""

    def __init__(self, rank: int, first: int = 0) -> None:
        self.rank = rank
        self.next = first
        self._steps: list[Step] = []
        self._row: list[Node] = []
        self._strip: list[Node] = []
        self._stores: list[Store] = []
        self._row_stores: list[Store] = []
        self._folds: list[Fold] = []
        self._uniform: dict[Any, Node] = {}
        self._varying: dict[Any, Node] = {}
        self._step_of: dict[Node, int] = {}
        self.calls = 0  # how many calls of functions were made

    # -- structure

    def make(self, do: Do, lane: Lane, *operands: Node, data: Any = None, varying: bool = False) -> Node:
        """Returns the value of an operation, reusing an equal earlier one."""
        key = (do, lane, tuple(o.number for o in operands), data)
        known = self._uniform.get(key) or self._varying.get(key)
        if known is not None:
            return known
        uniform = not varying and all(o.uniform for o in operands)
        node = Node(self._number(), do, lane, operands, data, uniform)
        (self._row if uniform else self._strip).append(node)
        (self._uniform if uniform else self._varying)[key] = node
        return node

    def _number(self) -> int:
        self.next += 1
        return self.next - 1

    def load(self, access: Access, lane: Lane, mask: Node | None = None, at: Node | None = None) -> Node:
        """Loads elements of a buffer; the i64 `at` is added to their offsets."""
        operands = [o for o in (at, mask) if o is not None]
        do = Do.LOAD if at is None else Do.LOAD_AT
        return self.make(do, lane, *operands, data=access, varying=access.column != 0)

    def index(self, axis: int, lane: Lane = Lane.I32) -> Node:
        """Returns the counter of a loop."""
        return self.make(Do.INDEX, lane, data=axis, varying=axis == self.rank)

    def store(
        self, access: Access, value: Node, do: Do | None = None, identity: int = 0, at: Node | None = None
    ) -> None:
        """Stores a value: in the strip, or once per row if its address does not depend on the column. See `Store`."""
        (self._stores if access.column else self._row_stores).append(Store(access, value, do, identity, at))

    def spill(self, node: Node, access: Access) -> None:
        """Stores a value of an earlier strip, so that this one can reload it."""
        step = self._steps[self._step_of[node]]
        assert isinstance(step, Strip)
        self._steps[self._step_of[node]] = replace(step, stores=(*step.stores, Store(access, node)))

    def fold(self, do: Do, identity: int, value: Node) -> Node:
        """Reduces a value over all columns, for use after the strip."""
        result = Node(self._number(), Do.FOLDED, value.lane, uniform=True)
        self._folds.append(Fold(do, identity, value, result))
        return result

    def end_row(self) -> None:
        """Closes the steps of the row, so that its stores precede later steps."""
        if self._row or self._row_stores:
            self._steps.append(Row(tuple(self._row), tuple(self._row_stores)))
            self._row, self._row_stores = [], []

    def end_strip(self) -> None:
        """Closes the current strip: later values are computed after it."""
        stores, self._row_stores = self._row_stores, []
        self.end_row()
        if self._stores or self._folds:
            self._step_of.update(dict.fromkeys(self._strip, len(self._steps)))
            self._steps.append(Strip(tuple(self._strip), tuple(self._stores), tuple(self._folds)))
        self._row_stores = stores
        self._strip, self._stores, self._folds, self._varying = [], [], [], {}

    def finish(self, rows: tuple[int, ...], columns: int, unroll: int) -> Nest:
        """Returns the nest of all steps."""
        self.end_strip()
        self.end_row()
        return Nest(rows, columns, unroll, tuple(self._steps))

    # -- values

    def constant(self, value: float, lane: Lane) -> Node:
        return self.bits(bits_of(value, lane), lane)

    def bits(self, bits: int, lane: Lane) -> Node:
        """Returns a constant with these bits."""
        return self.make(Do.CONSTANT, lane, data=bits)

    def like(self, x: Node, value: float) -> Node:
        """Returns a constant of the type of x."""
        return self.constant(value, x.lane)

    def op(self, do: Do, x: Node, *others: Node | float) -> Node:
        """Returns an operation on values of one type; numbers become constants."""
        operands = [x, *(o if isinstance(o, Node) else self.like(x, o) for o in others)]
        return self.make(do, Lane.MASK if do in COMPARISONS else x.lane, *operands)

    def add(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.ADD, x, y)

    def sub(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.SUB, x, y)

    def mul(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.MUL, x, y)

    def div(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.DIV, x, y)

    def fma(self, x: Node, y: Node | float, z: Node | float) -> Node:
        return self.op(Do.FMA, x, y, z)

    def lt(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.LT, x, y)

    def le(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.LE, x, y)

    def eq(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.EQ, x, y)

    def ne(self, x: Node, y: Node | float) -> Node:
        return self.op(Do.NE, x, y)

    def invert(self, x: Node) -> Node:
        """Returns the bitwise complement of integers or masks."""
        return self.op(Do.XOR, x, self.bits((1 << x.lane.bits) - 1, x.lane))

    def select(self, mask: Node, x: Node, y: Node | float) -> Node:
        other = y if isinstance(y, Node) else self.like(x, y)
        if mask.do is Do.CONSTANT:
            return x if mask.data else other
        return x if x is other else self.make(Do.SELECT, x.lane, mask, x, other)

    def call(self, function: Function, *operands: Node) -> Node:
        self.calls += 1
        return self.make(Do.CALL, operands[0].lane, *operands, data=function)

    def cast(self, do: Do, x: Node, lane: Lane) -> Node:
        """Returns a conversion, or x itself if it has the type."""
        return x if x.lane is lane else self.make(do, lane, x)

    def as_bits(self, x: Node) -> Node:
        """Bitcasts floats to integers."""
        return self.cast(Do.BITCAST, x, x.lane.integer)

    def as_float(self, x: Node) -> Node:
        """Bitcasts integers to floats."""
        return self.cast(Do.BITCAST, x, FLOATS[x.lane.bits])

    def abs(self, x: Node) -> Node:
        return self.as_float(self.op(Do.AND, self.as_bits(x), (1 << (x.lane.bits - 1)) - 1))

    def negate(self, x: Node) -> Node:
        """Flips the sign of floats."""
        return self.as_float(self.op(Do.XOR, self.as_bits(x), 1 << (x.lane.bits - 1)))

    def sign_bit(self, x: Node) -> Node:
        return self.op(Do.AND, self.as_bits(x), 1 << (x.lane.bits - 1))

    def with_sign(self, x: Node, sign: Node) -> Node:
        """Returns non-negative x with this sign bit."""
        return self.as_float(self.op(Do.OR, self.as_bits(x), sign))

    def polynomial(self, x: Node, coefficients: tuple[float, ...]) -> Node:
        """Evaluates a polynomial by Horner's rule, the highest coefficient first."""
        result = self.like(x, coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        return result
