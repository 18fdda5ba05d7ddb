"""topk: the greatest or the least elements along the last dimension, and their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import S32, Kind
from ..types.literal import Array
from ..types.shape import Shape, array, tuple_shape
from .checks import require_kind, require_static, text
from .numerics import total_order_key

_FEW = 4  # times k elements, from which a partition is faster than a sort
_LEAST_BLOCK = 8  # elements, from which the extremes of blocks are looked at first


@dataclass(frozen=True, slots=True)
class TopKAttributes(Attributes):
    """`largest` is true by default; XLA always prints it. Equal elements keep their order, whether asked to or not."""

    spellings: ClassVar = {"is_stable": {"true": None, "false": None}}
    k: int
    largest: bool | None = None

    def __post_init__(self) -> None:
        if self.largest is None:
            object.__setattr__(self, "largest", True)


def largest_rule(operand: Shape, k: int) -> ShardingRule:
    """Returns the rule of ops that give the k largest elements of each row, and their places."""
    b = RuleBuilder()
    batch = [b.factor(n) for n in operand.dims[:-1]]
    last = b.factor(operand.dims[-1], FactorKind.REDUCTION)
    kept = b.factor(k, FactorKind.REPLICATE)
    return b.rule([[*batch, last]], [[*batch, kept]] * 2)


@register
class TopK(Op[TopKAttributes]):
    """Returns the k greatest elements in descending order (or least in ascending order), and their indices as s32.

    Floats are in their total order: NaN is above infinity, 0.0 above -0.0. Equal elements keep their order.
    """

    opcode = "topk"
    algebra = Algebra.TOTAL_ORDER
    attributes = TopKAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: TopKAttributes, declared: Shape | None) -> Shape:
        (operand,) = operands
        require_kind("topk", operand, (Kind.PRED, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT))
        require_static("topk", operand)
        if not operand.rank:
            raise ShapeError("topk: the operand must have a dimension, it is " + text(operand))
        if not 0 <= attributes.k <= operand.dims[-1]:
            raise ShapeError(f"topk: k is {attributes.k}, the last dimension of {text(operand)} has {operand.dims[-1]}")
        dims = (*operand.dims[:-1], attributes.k)
        return tuple_shape((operand.with_dims(dims), array(S32, dims)))

    def sharding_rule(self, call: OpCall[TopKAttributes]) -> ShardingRule:
        return largest_rule(call.operands[0], call.attributes.k)

    def localize(self, call: OpCall[TopKAttributes], operands: Sequence[Shape], shape: Shape) -> TopKAttributes:
        return replace(call.attributes, k=shape.elements[0].dims[-1])

    def kernel(self, call: OpCall[TopKAttributes], compile: Compile) -> Kernel:
        k, largest = call.attributes.k, call.attributes.largest
        is_float = call.operands[0].element.is_float

        def run(x: Any) -> Any:
            places = _first(total_order_key(x) if is_float else x, k, bool(largest))
            return np.take_along_axis(x, places, -1), places.astype(np.int32)

        return run


def _first(keys: Array, k: int, largest: bool) -> Array:
    """Returns the places of the first k of the stable order of the last dimension.

    Where there are many elements, these are in the first k blocks by their extremes: each of those has an element
    before all of any other block, as it is more extreme or as extreme and further left.
    """
    rows, count = keys.shape[:-1], keys.shape[-1]
    size = math.isqrt(count // k) if k else 0  # so that blocks and what is in k of them are about as many
    if size < _LEAST_BLOCK:
        if keys.dtype.itemsize <= 4 and 0 < _FEW * k <= count:
            return _few(keys, k, largest)
        return (descending_order(keys) if largest else np.argsort(keys, axis=-1, kind="stable"))[..., :k]
    blocks = keys[..., : count - count % size].reshape(*rows, count // size, size)
    chosen = np.sort(_first(blocks.max(-1) if largest else blocks.min(-1), k, largest), -1)
    places = np.empty((*rows, k * size + count % size), np.int64)
    places[..., : k * size] = (chosen[..., None] * size + np.arange(size)).reshape(*rows, k * size)
    places[..., k * size :] = np.arange(size * (count // size), count)  # what fills no block
    return np.take_along_axis(places, _first(np.take_along_axis(keys, places, -1), k, largest), -1)


def _few(keys: Array, k: int, largest: bool) -> Array:
    """Returns the places of the first k of the stable order of the last dimension. Keys of at most 32 bits become
    numbers that also hold their places, so that no two are equal and a partition finds the same k as a sort.
    """
    last, below = keys.shape[-1] - 1, 0xFFFFFFFF
    places = np.arange(last + 1, dtype=np.int64)
    high = keys.astype(np.int64) - (1 << 31) * (keys.dtype.kind == "u") << 32  # 32 bits with a sign
    if largest:
        numbers: Array = np.partition(high | (last - places), last + 1 - k, -1)[..., last + 1 - k :]
        return last - (np.flip(np.sort(numbers, -1), -1) & below)
    numbers = np.partition(high | places, k - 1, -1)[..., :k]
    return np.sort(numbers, -1) & below


def descending_order(x: Any) -> Any:
    """Returns the stable descending order of the last dimension: NaN above all, -0.0 equal to 0.0."""
    keys = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    flipped = np.flip(keys, -1)
    order = np.flip(np.argsort(flipped, axis=-1, kind="stable"), -1)
    return x.shape[-1] - 1 - order
