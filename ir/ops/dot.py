"""dot: the general product of two arrays over contracting dimensions, with batch dimensions.

Result dimensions are the batch dimensions, then the free ones of lhs, then those of rhs, each in operand order. The
kernel computes every dot as one batched `np.matmul`, which calls BLAS for floats of 32 and 64 bits. Smaller floats are
multiplied and added in f32 and rounded once at the end. Operands of different types are first converted to the highest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ..factors.sharding_rule import FactorKind, Monoid, RuleBuilder, ShardingRule
from ..graph.attributes import PRINTED_ALWAYS, Attributes, Dims
from ..graph.interfaces import FloatTypes, Stackable
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import ElementType, Kind, precision
from ..types.shape import Shape, array
from . import numerics
from .computations import accumulator, check_arrays, check_dims, multiplied, rounded


class Precision(Enum):
    """The precision of products with an operand; relevant only on accelerators."""

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"
    PACKED_NIBBLE = "packed_nibble"


Precisions = tuple[Precision, ...]


class DotAlgorithm(Enum):
    """The types of operands and sums, and the number of passes (`x3`)."""

    UNSET = "unset"
    ANY_F8_F32 = "dot_any_f8_any_f8_f32"
    ANY_F8_F32_FAST = "dot_any_f8_any_f8_f32_fast_accum"
    F16_F16 = "dot_f16_f16_f16"
    F16_F32 = "dot_f16_f16_f32"
    BF16_BF16 = "dot_bf16_bf16_bf16"
    BF16_F32 = "dot_bf16_bf16_f32"
    BF16_F32_X3 = "dot_bf16_bf16_f32_x3"
    BF16_F32_X6 = "dot_bf16_bf16_f32_x6"
    BF16_F32_X9 = "dot_bf16_bf16_f32_x9"
    TF32_F32 = "dot_tf32_tf32_f32"
    TF32_F32_X3 = "dot_tf32_tf32_f32_x3"
    F32_F32 = "dot_f32_f32_f32"
    F64_F64 = "dot_f64_f64_f64"


@dataclass(frozen=True, slots=True)
class DotAttributes(Attributes):
    lhs_batch_dims: Dims = ()
    lhs_contracting_dims: Dims = field(default=(), metadata=PRINTED_ALWAYS)
    rhs_batch_dims: Dims = ()
    rhs_contracting_dims: Dims = field(default=(), metadata=PRINTED_ALWAYS)
    operand_precision: Precisions = ()
    algorithm: DotAlgorithm | None = None


@dataclass(frozen=True, slots=True)
class _Side:
    """The dimensions of one operand by their role."""

    batch: Dims
    contracting: Dims
    free: Dims


def _sides(operands: Sequence[Shape], a: DotAttributes) -> tuple[_Side, _Side]:
    def side(shape: Shape, batch: Dims, contracting: Dims) -> _Side:
        return _Side(batch, contracting, tuple(d for d in range(shape.rank) if d not in batch + contracting))

    lhs, rhs = operands
    return side(lhs, a.lhs_batch_dims, a.lhs_contracting_dims), side(rhs, a.rhs_batch_dims, a.rhs_contracting_dims)


@register
class Dot(Op[DotAttributes], Stackable, FloatTypes):
    """Sums products of lhs and rhs over the contracting dimensions."""

    opcode = "dot"
    algebra = Algebra.BILINEAR
    attributes = DotAttributes
    arity = (2, 2)
    converts_result = True

    def infer_shape(self, operands: Sequence[Shape], attributes: DotAttributes, declared: Shape | None) -> Shape:
        check_arrays("dot", operands)
        lhs, rhs = operands
        a = attributes
        check_dims("dot: lhs", a.lhs_batch_dims + a.lhs_contracting_dims, lhs.rank)
        check_dims("dot: rhs", a.rhs_batch_dims + a.rhs_contracting_dims, rhs.rank)
        check_pairs("dot", "batch", lhs, rhs, a.lhs_batch_dims, a.rhs_batch_dims)
        check_pairs("dot", "contracting", lhs, rhs, a.lhs_contracting_dims, a.rhs_contracting_dims)
        left, right = _sides(operands, a)
        dims = [lhs.dims[d] for d in left.batch + left.free] + [rhs.dims[d] for d in right.free]
        return array(result_element("dot", lhs.element, rhs.element, declared), tuple(dims))

    def sharding_rule(self, call: OpCall[DotAttributes]) -> ShardingRule:
        lhs, rhs = call.operands
        left, right = _sides(call.operands, call.attributes)
        b = RuleBuilder()
        batch = [b.factor(lhs.dims[d]) for d in left.batch]
        rows = [b.factor(lhs.dims[d]) for d in left.free]
        columns = [b.factor(rhs.dims[d]) for d in right.free]
        contracting = [b.factor(lhs.dims[d], summed("dot", call)) for d in left.contracting]

        def operand(side: _Side, free: list[int | None]) -> list[int | None]:
            place = dict(zip(side.batch + side.contracting + side.free, batch + contracting + free, strict=True))
            return [place[d] for d in range(len(place))]

        monoid = Monoid.OR if call.shape.element.kind is Kind.PRED else Monoid.ADD
        return b.rule([operand(left, rows), operand(right, columns)], [batch + rows + columns], monoid)

    def stacked(self, call: OpCall[DotAttributes], count: int) -> OpCall[DotAttributes]:
        def behind(dims: Dims) -> Dims:
            return tuple(d + 1 for d in dims)

        a = call.attributes
        attributes = replace(
            a, lhs_batch_dims=(0, *behind(a.lhs_batch_dims)), lhs_contracting_dims=behind(a.lhs_contracting_dims),
            rhs_batch_dims=(0, *behind(a.rhs_batch_dims)), rhs_contracting_dims=behind(a.rhs_contracting_dims),
        )  # fmt: skip
        lhs, rhs, result = (array(s.element, (count, *s.dims)) for s in (*call.operands, call.shape))
        return OpCall((lhs, rhs), attributes, result)

    def kernel(self, call: OpCall[DotAttributes], compile: Compile) -> Kernel:
        lhs, rhs = call.operands
        left, right = _sides(call.operands, call.attributes)
        element, (convert_lhs, convert_rhs) = call.shape.element, conversions(call.operands, call.shape)
        batch = tuple(lhs.dims[d] for d in left.batch)
        depth = math.prod(lhs.dims[d] for d in left.contracting)
        rows = math.prod(lhs.dims[d] for d in left.free)
        columns = math.prod(rhs.dims[d] for d in right.free)
        lhs_order, lhs_shape = left.batch + left.free + left.contracting, (*batch, rows, depth)
        rhs_order, rhs_shape = right.batch + right.contracting + right.free, (*batch, depth, columns)
        dims = call.shape.dims

        def run(x: Any, y: Any) -> Any:
            x = convert_lhs(x).transpose(lhs_order).reshape(lhs_shape)
            y = convert_rhs(y).transpose(rhs_order).reshape(rhs_shape)
            return rounded(multiplied(x, y).reshape(dims), element)

        return run


def check_pairs(opcode: str, what: str, lhs: Shape, rhs: Shape, lhs_dims: Dims, rhs_dims: Dims) -> None:
    """Requires as many dimensions of lhs as of rhs, of the same sizes in pairs."""
    if len(lhs_dims) != len(rhs_dims):
        raise ShapeError(f"{opcode}: lhs has {len(lhs_dims)} {what} dimensions, rhs has {len(rhs_dims)}",
                         f"lhs_{what}_dims and rhs_{what}_dims name them in pairs")
    for left, right in zip(lhs_dims, rhs_dims, strict=True):
        if lhs.dims[left] != rhs.dims[right]:
            raise ShapeError(
                f"{opcode}: {what} dimensions differ: "
                f"lhs dimension {left} is {lhs.dims[left]}, rhs dimension {right} is {rhs.dims[right]}"
            )


_CLASS = {Kind.PRED: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}


def result_element(opcode: str, lhs: ElementType, rhs: ElementType, declared: Shape | None) -> ElementType:
    """Returns the element type of sums: the declared one (XLA's preferred_element_type), or the operands' highest type
    if none is declared or if the declared one cannot hold the sums, which are then converted.
    """
    higher = max(lhs, rhs, key=precision)
    if declared is None or not declared.is_array:
        return higher
    return higher if _CLASS[declared.element.kind] < _CLASS[higher.kind] else declared.element


def summed(opcode: str, call: OpCall[Any]) -> FactorKind:
    """Returns the kind of contracting factors: reduction, or replicate if the result cannot hold partial sums."""
    lhs, rhs = call.operands[:2]
    holds = result_element(opcode, lhs.element, rhs.element, call.shape) is call.shape.element
    return FactorKind.REDUCTION if holds else FactorKind.REPLICATE


def conversions(operands: Sequence[Shape], shape: Shape) -> Iterator[Kernel]:
    """Yields one function per operand that converts it to the type of the products: as in XLA, the highest of operands
    and result, in its numpy accumulator type.
    """
    highest = max((*(s.element for s in operands), shape.element), key=precision)
    wide = accumulator(highest)

    def conversion(source: ElementType) -> Kernel:
        convert = numerics.convert(source, highest)

        def run(x: Any) -> Any:
            return convert(x).astype(wide, copy=False)

        return run

    return (conversion(s.element) for s in operands)
