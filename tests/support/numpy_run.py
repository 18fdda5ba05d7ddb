"""Runs kernels of the loop IR by numpy, a block of rows at a time: what machine code is compared with.

Numpy has no fused multiply-add: in f32 its place is taken by f64 arithmetic, rounded twice, in f64 by a product and a
sum. Functions are numpy's own unless they were expanded, and so is the order of sums. So floats may differ from those
of compiled kernels in the last bits, integers and masks do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hloom.codegen.native.loops import (
    COMPARISONS,
    LOADS,
    Access,
    Do,
    Fold,
    Function,
    Kernel,
    Lane,
    Nest,
    Node,
    Row,
    Store,
    Strip,
)  # fmt: skip
from hloom.ir.graph.extremes import MAXIMUM, MINIMUM, ArrayFold
from hloom.ir.types.literal import Array

_BLOCK = 1 << 12  # values that numpy computes together: small ones meet the borders of blocks more often

DTYPES: dict[Lane, np.dtype[Any]] = {
    Lane.MASK: np.dtype(np.bool_), Lane.I8: np.dtype(np.int8), Lane.I16: np.dtype(np.int16),
    Lane.I32: np.dtype(np.int32), Lane.I64: np.dtype(np.int64), Lane.F32: np.dtype(np.float32),
    Lane.F64: np.dtype(np.float64),
}  # fmt: skip


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


def _fma(x: Array, y: Array, z: Array) -> Array:
    if x.dtype == np.float64:
        return x * y + z
    return (x.astype(np.float64) * y + z).astype(np.float32)


def _as_unsigned(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(*operands: Array) -> Array:
        return function(*[o.view(unsigned(o.dtype)) for o in operands])

    return run


def _signed_quotient(x: Array, y: Array) -> Array:
    return (x - np.fmod(x, y)) // y


_PLAIN: dict[Do, Callable[..., Any]] = {
    Do.ADD: np.add, Do.SUB: np.subtract, Do.MUL: np.multiply, Do.DIV: np.divide, Do.FMA: _fma, Do.SQRT: np.sqrt,
    Do.FLOOR: np.floor, Do.CEIL: np.ceil, Do.TRUNC: np.trunc, Do.RINT: np.rint, Do.SDIV: _signed_quotient,
    Do.SREM: np.fmod, Do.UDIV: _as_unsigned(np.floor_divide), Do.UREM: _as_unsigned(np.remainder),
    Do.AND: np.bitwise_and, Do.OR: np.bitwise_or, Do.XOR: np.bitwise_xor, Do.SHL: np.left_shift,
    Do.LSHR: _as_unsigned(np.right_shift), Do.ASHR: np.right_shift, Do.MAXIMUM: MAXIMUM, Do.MINIMUM: MINIMUM,
    Do.UMAXIMUM: _as_unsigned(np.maximum), Do.UMINIMUM: _as_unsigned(np.minimum), Do.EQ: np.equal, Do.NE: np.not_equal,
    Do.LT: np.less, Do.LE: np.less_equal, Do.ULT: _as_unsigned(np.less), Do.ULE: _as_unsigned(np.less_equal),
    Do.SELECT: np.where,
}  # fmt: skip


def _libm(function: Callable[[float], float]) -> Callable[..., Array]:
    apply: Any = np.frompyfunc(function, 1, 1)

    def run(x: Array) -> Array:
        return apply(x).astype(x.dtype)

    return run


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[Function, Callable[..., Any]] = {
    Function.EXP: np.exp, Function.EXPM1: np.expm1, Function.LOG: np.log, Function.LOG1P: np.log1p,
    Function.TANH: np.tanh, Function.SIN: np.sin, Function.COS: np.cos, Function.TAN: np.tan, Function.CBRT: np.cbrt,
    Function.ATAN2: np.arctan2, Function.POW: np.power, Function.ERF: _libm(math.erf),
    Function.LOGISTIC: _logistic,
    Function.SINH: np.sinh, Function.COSH: np.cosh, Function.ASINH: np.arcsinh, Function.ACOSH: np.arccosh,
    Function.ATANH: np.arctanh, Function.ASIN: np.arcsin, Function.ACOS: np.arccos,
}  # fmt: skip


_FOLDS: dict[Do, ArrayFold] = {
    Do.ADD: np.add, Do.MUL: np.multiply, Do.MAXIMUM: MAXIMUM, Do.MINIMUM: MINIMUM, Do.UMAXIMUM: np.maximum,
    Do.UMINIMUM: np.minimum, Do.AND: np.bitwise_and, Do.OR: np.bitwise_or, Do.XOR: np.bitwise_xor,
}  # fmt: skip
_UNSIGNED_FOLDS = (Do.UMAXIMUM, Do.UMINIMUM)


def run_by_numpy(kernel: Kernel, buffers: Sequence[Array]) -> None:
    """Runs a kernel on flat arrays of the element types of its buffers."""
    with np.errstate(all="ignore"):
        for nest in kernel.nests:
            _Run(nest, buffers).run()


class _Run:
    """Runs one nest in blocks. A block is a range of each loop: all of the innermost loops, some of one, one of the
    others; it splits columns only where one row without folds exceeds a block. Rows with stores at computed addresses
    are blocks of their own. Values have a dimension for each loop, of size 1 where they do not depend on it.
    """

    def __init__(self, nest: Nest, buffers: Sequence[Array]) -> None:
        self.nest = nest
        self.buffers = buffers
        self.block: tuple[range, ...] = ()
        self.values: dict[Node, Array] = {}
        self.rows: dict[Access, Array] = {}  # scratch rows, one for each row of the block

    def run(self) -> None:
        for block in itertools.product(*self.ranges()):
            self.block, self.values = block, {}
            for step in self.nest.steps:
                self.step(step)

    def ranges(self) -> list[list[range]]:
        """Returns the ranges of each loop."""
        whole = any(step.folds if isinstance(step, Strip) else step.stores for step in self.nest.steps)
        columns, most = self.nest.columns, _BLOCK
        if any(store.at is not None for step in self.nest.steps for store in step.stores):
            most = 1
        size, found = columns, [_cut(columns, columns if whole else _BLOCK)]
        for loop in reversed(self.nest.rows):
            found.insert(0, _cut(loop, max(1, most // size)))
            size *= loop
        return found

    def step(self, step: Row | Strip) -> None:
        for node in step.nodes:
            self.values[node] = self.node(node)
        for store in step.stores:
            self.store(store)
        if isinstance(step, Strip):
            for fold in step.folds:
                self.values[fold.result] = self.fold(fold)

    def node(self, node: Node) -> Array:
        do, dtype, operands = node.do, DTYPES[node.lane], [self.values[o] for o in node.operands]
        if do is Do.CONSTANT:
            return _constant(node.data, node.lane)
        if do in LOADS:
            at, mask = node.place_and_mask()
            return self.load(node.data, *(None if o is None else self.values[o] for o in (at, mask)))
        if do is Do.INDEX:
            return self.index(node.data).astype(dtype)
        if do is Do.CALL:
            return _FUNCTIONS[node.data](*operands).astype(dtype, copy=False)
        if do in _PLAIN:
            result = np.asarray(_PLAIN[do](*operands))
            return result if do in COMPARISONS or result.dtype == dtype else result.view(dtype)
        x = operands[0]
        if do is Do.BITCAST:
            return x.view(dtype)
        if do in (Do.ZEXT, Do.FROM_UNSIGNED) and x.dtype != np.bool_:
            x = x.view(unsigned(x.dtype))
        if do is Do.SEXT and x.dtype == np.bool_:
            return -x.astype(dtype)
        if do is Do.TO_UNSIGNED:
            return x.astype(unsigned(dtype)).view(dtype)
        return x.astype(dtype)

    def index(self, loop: int) -> Array:
        return _along(np.arange(self.block[loop].start, self.block[loop].stop), loop, len(self.block))

    def load(self, access: Access, at: Array | None, mask: Array | None) -> Array:
        if mask is not None or at is not None:
            places, mask = np.broadcast_arrays(self.places(access, at), np.True_ if mask is None else mask)
            found = self.buffers[access.buffer][np.where(mask, places, 0)]
            return np.where(mask, found, np.zeros((), found.dtype))
        found = self.rows.get(access)
        return self.view(access) if found is None else found

    def places(self, access: Access, at: Array | None) -> Array:
        """Returns the offsets of the block's elements in the buffer."""
        places = np.full((1,) * len(self.block), access.offset) if at is None else at + access.offset
        for loop, stride in enumerate(access.strides):
            if stride:
                places = places + self.index(loop) * stride
        return places

    def view(self, access: Access) -> Array:
        """Returns the block's elements as a view of the buffer, of size 1 along loops that they do not depend on."""
        buffer = self.buffers[access.buffer]
        first = access.offset + sum(part.start * s for part, s in zip(self.block, access.strides, strict=True))
        sizes = [len(part) if s else 1 for part, s in zip(self.block, access.strides, strict=True)]
        return np.lib.stride_tricks.as_strided(buffer[first:], sizes, [s * buffer.itemsize for s in access.strides])

    def store(self, store: Store) -> None:
        access, value = store.access, self.values[store.value]
        if store.at is not None:
            self.buffers[access.buffer][self.places(access, self.values[store.at])] = value
            return
        if store.do is None and math.prod(self.nest.rows) > 1 and not any(access.strides[:-1]):
            self.rows[access] = value
            return
        place = self.view(access)
        shared = store.combined_rows(self.nest.rows) if store.do else []
        if store.do is None or not shared:
            place[...] = value
            return
        sizes = [len(part) if n in shared else size for n, (part, size) in enumerate(zip(self.block, place.shape))]
        value = _folded(store.do, np.broadcast_to(value, sizes), tuple(shared))
        first = all(self.block[n].start == 0 for n in shared)
        old = _constant(store.identity, store.value.lane) if first else place
        place[...] = _PLAIN[store.do](old, value)

    def fold(self, fold: Fold) -> Array:
        value = self.values[fold.value]
        return _folded(fold.do, np.broadcast_to(value, (*value.shape[:-1], self.nest.columns)), -1)


def _cut(size: int, most: int) -> list[range]:
    """Returns ranges of at most this size."""
    return [range(first, min(first + most, size)) for first in range(0, size, most)]


def _along(values: Array, axis: int, rank: int) -> Array:
    """Returns a vector as an array of this rank."""
    return values.reshape([-1 if n == axis else 1 for n in range(rank)])


def _folded(do: Do, values: Array, axis: int | tuple[int, ...]) -> Array:
    """Combines along axes, which remain with size 1."""
    dtype = unsigned(values.dtype) if do in _UNSIGNED_FOLDS else values.dtype
    return _FOLDS[do].reduce(values.view(dtype), axis=axis, dtype=dtype, keepdims=True).view(values.dtype)


def _constant(bits: int, lane: Lane) -> Array:
    if lane is Lane.MASK:
        return np.full((1, 1), bool(bits))
    dtype = DTYPES[lane]
    return np.full((1, 1), bits, unsigned(dtype)).view(dtype)
