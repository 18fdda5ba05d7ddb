"""cholesky and triangular-solve on matrices in the last two dimensions; the others are batch dimensions.

Only the triangle selected by `lower` is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes
from ..graph.interfaces import Multiplies
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import Kind
from ..types.products import Products, ProductSizes
from ..types.shape import Shape
from .blocked import adjoint, cholesky, solve_triangular
from .checks import require_kind, require_same_element, require_static, text
from .computations import accumulator
from .numerics import numpy_type


def _check_square(opcode: str, shape: Shape) -> None:
    require_kind(opcode, shape, (Kind.FLOAT, Kind.COMPLEX))
    require_static(opcode, shape)
    if shape.rank < 2 or shape.dims[-1] != shape.dims[-2]:
        raise ShapeError(f"{opcode}: the last two dimensions must be equal, the matrix is {text(shape)}")


@dataclass(frozen=True, slots=True)
class CholeskyAttributes(Attributes):
    lower: bool = False


@register
class Cholesky(Op[CholeskyAttributes], Multiplies):
    """Returns the triangular matrix L with a = L L^H, or U with a = U^H U. NaN where a is not positive definite."""

    opcode = "cholesky"
    algebra = Algebra.OPAQUE
    attributes = CholeskyAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: CholeskyAttributes, declared: Shape | None) -> Shape:
        _check_square("cholesky", operands[0])
        return operands[0]

    def sharding_rule(self, call: OpCall[CholeskyAttributes]) -> ShardingRule:
        dims = call.operands[0].dims
        b = RuleBuilder()
        value = [b.factor(n) for n in dims[:-2]] + [b.factor(n, FactorKind.REPLICATE) for n in dims[-2:]]
        return b.rule([value], [value])

    def products(self, call: OpCall[CholeskyAttributes]) -> Products:
        *batch, _, n = call.shape.dims
        return Products(ProductSizes(math.prod(batch), n, n, n), 1 / 6)

    def kernel(self, call: OpCall[CholeskyAttributes], compile: Compile) -> Kernel:
        lower, final = call.attributes.lower, numpy_type(call.shape.element)
        compute = accumulator(call.shape.element)

        def run(x: Any) -> Any:
            x = x.astype(compute, copy=False)
            found, _ = cholesky(x if lower else adjoint(x))
            return (found if lower else adjoint(found)).astype(final, copy=False)

        return run


class Transposition(Enum):
    NONE = "NO_TRANSPOSE"
    TRANSPOSE = "TRANSPOSE"
    ADJOINT = "ADJOINT"


@dataclass(frozen=True, slots=True)
class TriangularSolveAttributes(Attributes):
    left_side: bool = False
    lower: bool = False
    unit_diagonal: bool = False
    transpose_a: Transposition | None = None


@register
class TriangularSolve(Op[TriangularSolveAttributes], Multiplies):
    """Solves op(a) x = b, or x op(a) = b without `left_side`, for x; a is triangular."""

    opcode = "triangular-solve"
    algebra = Algebra.OPAQUE
    attributes = TriangularSolveAttributes
    arity = (2, 2)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: TriangularSolveAttributes, declared: Shape | None
    ) -> Shape:
        a, b = operands
        _check_square("triangular-solve", a)
        require_same_element("triangular-solve", a, b)
        require_static("triangular-solve", b)
        if b.rank != a.rank or b.dims[:-2] != a.dims[:-2]:
            raise ShapeError(f"triangular-solve: batch dimensions differ: {text(a)} and {text(b)}")
        side = -2 if attributes.left_side else -1
        if b.dims[side] != a.dims[-1]:
            name = "rows" if attributes.left_side else "columns"
            raise ShapeError(f"triangular-solve: {text(b)} must have {a.dims[-1]} {name}, as {text(a)} has")
        return b

    def sharding_rule(self, call: OpCall[TriangularSolveAttributes]) -> ShardingRule:
        a, other = call.operands
        b = RuleBuilder()
        batch = [b.factor(n) for n in a.dims[:-2]]
        rows, columns = (b.factor(n, FactorKind.REPLICATE) for n in a.dims[-2:])
        # Each column of b (row, on the right side) is a separate system.
        if call.attributes.left_side:
            value = [*batch, rows, b.factor(other.dims[-1])]
        else:
            value = [*batch, b.factor(other.dims[-2]), columns]
        return b.rule([[*batch, rows, columns], value], [value])

    def products(self, call: OpCall[TriangularSolveAttributes]) -> Products:
        *batch, _, n = call.operands[0].dims
        systems = call.shape.dims[-1 if call.attributes.left_side else -2]
        return Products(ProductSizes(math.prod(batch), n, systems, n), 0.5)

    def kernel(self, call: OpCall[TriangularSolveAttributes], compile: Compile) -> Kernel:
        attributes, compute = call.attributes, accumulator(call.shape.element)
        final = numpy_type(call.shape.element)
        left = attributes.left_side
        transpose = attributes.transpose_a in (Transposition.TRANSPOSE, Transposition.ADJOINT)
        # On the right side the transposed system is solved; two transpositions cancel.
        turned = transpose == left
        lower = attributes.lower != turned

        def run(a: Any, b: Any) -> Any:
            a, b = a.astype(compute, copy=False), b.astype(compute, copy=False)
            if attributes.transpose_a is Transposition.ADJOINT:
                a = np.conj(a)
            a = np.swapaxes(a, -1, -2) if turned else a
            b = b if left else np.swapaxes(b, -1, -2)
            x = solve_triangular(a, b, lower, attributes.unit_diagonal)
            return (x if left else np.swapaxes(x, -1, -2)).astype(final, copy=False)

        return run
