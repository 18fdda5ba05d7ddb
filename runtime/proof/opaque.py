"""Random functions of whole matrices, by the sharding rule of an op.

Devices may divide the passing factors. So each index of these has a function of its own, of its slices of the operands:
a matrix of a batch, a column of a right side.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.factors.sharding_rule import FactorKind, ShardingRule, ValueFactors
from ...ir.graph.interfaces import Draws
from ...ir.graph.op import AnyOp, Kernel, NotEvaluable, OpCall, RandomState
from ...ir.types.element_type import Kind
from ...ir.types.literal import Array
from ...ir.types.shape import Shape
from ..plan.steps import flatten, unflatten
from . import pairs
from .embedding import embed
from .field import ONE, UNDEFINED, is_nan
from .oracle import Oracle

_WHERE_AND_WHEN = ("output_to_operand_aliasing", "schedule")  # XLA's partitioner drops what calls say of these


def opaque(op: AnyOp, call: OpCall[Any], oracle: Oracle, on_codes: bool = False) -> Kernel:
    """A random function that can be divided by the sharding rule of an op. One that draws from the random state of a
    device is another function in each draw. With `on_codes` all values are field elements, integers too. Raises
    NotEvaluable.
    """
    taken = [leaf for shape in call.operands for leaf in shape.leaves()]
    given = list(call.shape.leaves())
    if not any(leaf.is_array for leaf in given):
        return lambda *_: unflatten([None] * len(given), call.shape)
    name, rule = _name(op, call), op.sharding_rule(call)
    sources = [_Slices(rule, v, s, on_codes) for v, s in zip(rule.operands, taken, strict=True)]
    targets = [_Slices(rule, v, s, on_codes) for v, s in zip(rule.results, given, strict=True)]
    if not all(target.has_all for target in targets if target.shape.is_array):
        raise NotEvaluable("its sharding rule divides some results and others not")

    def compute(name: str, values: Sequence[Any]) -> Any:
        leaves = [x for value, shape in zip(values, call.operands, strict=True) for x in flatten(value, shape)]
        parts = enumerate(zip(sources, leaves, strict=True))
        seen = [s.seen(oracle, f"{name} {n}", x) for n, (s, x) in parts if s.shape.is_array]
        made = [t.made(oracle, f"{name} -> {n}", seen) if t.shape.is_array else None for n, t in enumerate(targets)]
        return unflatten(made, call.shape)

    def draw(state: RandomState, *values: Any) -> Any:
        state.draws += 1
        return compute(f"{name} draw {state.draws}", values)

    return draw if op.interface(Draws) else lambda *values: compute(name, values)


def _name(op: AnyOp, call: OpCall[Any]) -> str:
    """The op and all inputs of its function other than operands, alike for all parts of it."""
    words = [op.opcode, call.config]
    for field in dataclasses.fields(call.attributes):
        value = getattr(call.attributes, field.name)
        is_shapes = isinstance(value, tuple) and any(isinstance(v, Shape) for v in value)  # pyright: ignore
        words += [] if is_shapes or field.name in _WHERE_AND_WHEN else [f"{field.name}={value}"]
    leaves = (leaf for shape in (*call.operands, call.shape) for leaf in shape.leaves())
    return " ".join([*words, *(leaf.element.name for leaf in leaves)])


class _Slices:
    """An operand or a result, cut into the slice of each index of the passing factors of a rule."""

    def __init__(self, rule: ShardingRule, value: ValueFactors, shape: Shape, on_codes: bool) -> None:
        self.shape, self._on_codes = shape, on_codes
        kinds = [factor.kind for factor in rule.factors]
        if not set(kinds) <= {FactorKind.PASS, FactorKind.REPLICATE}:
            raise NotEvaluable("its parts are no functions of their own: sums of them, or they exchange elements")
        passing = [f for f, kind in enumerate(kinds) if kind is FactorKind.PASS]
        axes = [f for dim in value for f in dim]
        own = [f for f in passing if f in axes]
        if len(own) < sum(f in passing for f in axes):
            raise NotEvaluable("its sharding rule has a factor twice in one value")
        self.has_all = own == passing
        self._sizes = [rule.factors[f].size for f in axes]
        self._order = sorted(range(len(axes)), key=lambda n: (axes[n] not in own, axes[n] if axes[n] in own else n))
        self._indices = tuple(rule.factors[f].size if f in own else 1 for f in passing)
        self._elements = math.prod(rule.factors[f].size for f in axes if f not in own)

    def seen(self, random: Oracle, name: str, x: Array) -> Array:
        """Hashes the slice of each index to a number. It is UNDEFINED where an element is NaN."""
        if pairs.is_pairs(x):
            return random.value(name, *(self.seen(random, name, part) for part in pairs.parts(x)))
        codes = embed(x) if pairs.is_exact(self.shape) and not self._on_codes else x
        slices = codes.reshape(self._sizes).transpose(self._order).reshape(*self._indices, self._elements)
        hashed = random.value(name, slices, self._places)
        undefined = is_nan(slices).any(-1)
        return np.where(undefined, UNDEFINED, np.add.reduce(hashed, -1, dtype=np.uint64) >> ONE)

    def made(self, random: Oracle, name: str, seen: Sequence[Array]) -> Array:
        """Returns the result: at each place of a slice, a random function of these numbers."""
        if self.shape.element.is_complex:
            return pairs.pair(*(self._elements_made(random, f"{name} {part}", seen) for part in ("real", "imaginary")))
        found = self._elements_made(random, name, seen)
        if self.shape.element.is_float or self._on_codes:
            return found
        element = self.shape.element
        if element.kind is Kind.PRED:
            return (found & ONE) == ONE
        # Integers number rows or columns. A single one tells of a failure, which is rare.
        return (found % np.uint64(max(self._elements, 1) + random.is_free)).astype(element.numpy)

    def _elements_made(self, random: Oracle, name: str, seen: Sequence[Array]) -> Array:
        values = random.value(name, *(x[..., None] for x in seen), self._places)
        slices = np.broadcast_to(values, (*self._indices, self._elements))
        turned = slices.reshape([self._sizes[n] for n in self._order])
        return turned.transpose(np.argsort(self._order)).reshape(self.shape.dims)

    @property
    def _places(self) -> Array:
        return np.arange(self._elements, dtype=np.uint64)
