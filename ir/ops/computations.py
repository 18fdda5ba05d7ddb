"""Helpers of ops with called computations and dimension numbers: signature checks, dimension checks, numpy types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.attributes import Dims
from ..graph.interfaces import Applies, Call, Ranges
from ..graph.op import Algebra, Kernel, ShapeError
from ..graph.value_range import Demand, Fact, Visitor, meet_demands
from ..types.element_type import ElementType
from ..types.shape import Shape, array
from .checks import require_array, text
from .numerics import numpy_type

if TYPE_CHECKING:
    from ..graph.computation import Computation


_FEW = 1 << 14  # products of integers, up to which a conversion takes longer


def accumulator(element: ElementType) -> np.dtype[Any]:
    """Returns the numpy type in which sums of this element type are computed before rounding: at least 32 bits for
    floats and for integers that numpy cannot add. Raises NotEvaluable if the type has no numpy type.
    """
    dtype = numpy_type(element)
    if element.is_float and element.bits < 32:
        return np.dtype(np.float32)
    if element.is_integer and element.bits < 8:
        return np.dtype(np.int32)
    return dtype


def rounded(x: Any, element: ElementType) -> Any:
    """Converts an array from the accumulator type to its element type; integers wrap around."""
    dtype = numpy_type(element)
    if element.is_integer and element.bits < 8 and x.dtype != dtype:
        # numpy wraps to bytes only, so the upper bits are filled with the sign here.
        spare = 32 - element.bits
        wide = x.astype(np.int32 if element.kind.value == "signed" else np.uint32)
        x = np.right_shift(np.left_shift(wide, spare), spare)
    return x.astype(dtype, copy=False)


def multiplied(x: Any, y: Any) -> Any:
    """Returns `np.matmul` of two arrays. Numpy multiplies integers one by one: where floats of 64 bits hold all sums
    exactly, they are multiplied as such, by BLAS. Arrays of other classes, such as those of proofs, are left to it.
    """
    if type(x) is type(y) is np.ndarray and x.dtype.kind in "iu" and x.size * y.shape[-1] > _FEW:
        largest = math.prod(max(abs(int(a.min())), abs(int(a.max()))) for a in (x, y))
        if largest * x.shape[-1] <= 1 << 53:
            return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64).astype(x.dtype)
    return np.matmul(x, y)


def always(value: Any) -> Kernel:
    """Returns a kernel that returns this value for all operands."""

    def run(*operands: Any) -> Any:
        return value

    return run


def check_arrays(opcode: str, operands: Sequence[Shape]) -> None:
    """Requires that every operand is an array."""
    for number, shape in enumerate(operands):
        require_array(opcode, shape, f"operand {number}")


def equal_dims(opcode: str, operands: Sequence[Shape]) -> Dims:
    """Returns the dimensions of the operands, which must be arrays of equal ones."""
    check_arrays(opcode, operands)
    dims = operands[0].dims
    for number, shape in enumerate(operands):
        if shape.dims != dims:
            raise ShapeError(f"{opcode}: operand {number} has dimensions {list(shape.dims)}, operand 0 {list(dims)}")
    return dims


def check_dims(what: str, dims: Dims, rank: int, ascending: bool = False) -> None:
    """Requires distinct dimension numbers within the rank, in ascending order if `ascending`."""
    for dim in dims:
        if not 0 <= dim < rank:
            raise ShapeError(f"{what}: dimension {dim} is out of range for rank {rank}", "they are numbered from 0")
    if len(set(dims)) != len(dims):
        repeated = next(d for d in dims if dims.count(d) > 1)
        raise ShapeError(f"{what}: dimension {repeated} is listed twice")
    if ascending and tuple(sorted(dims)) != dims:
        raise ShapeError(f"{what}: dimensions must be in ascending order, not {list(dims)}")


def combined_demands(
    computation: Computation, results: Sequence[Demand], visitor: Visitor
) -> tuple[list[Demand], list[Demand]]:
    """Returns the demands of a combining computation on its first and on its second set of values."""
    found = visitor.demands(computation, [Fact() for _ in range(2 * len(results))], results)
    return found[: len(results)], found[len(results) :]


class Reduces(Applies, Ranges):
    """An op that reduces n arrays, whose n initial values follow as operands, by a computation."""

    algebra = Algebra.FOLD
    arity = (2, None)

    def facts(self, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        """Returns the bounds of the operands that combining preserves."""
        count = len(operands) // 2
        before = [Fact(a.range.hull(b.range)) for a, b in zip(operands[:count], operands[count:], strict=True)]
        others = [Fact(fact.range) for fact in before]
        after = visitor.facts(call.attributes.to_apply, [*before, *others])
        return [Fact(a.range.widened(b.range)) for a, b in zip(before, after, strict=True)]

    def demands(
        self, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Returns the demands of the computation on the arrays, then on the initial values."""
        old, new = combined_demands(call.attributes.to_apply, results, visitor)
        both = [meet_demands(a, b) for a, b in zip(old, new, strict=True)]
        return both + both


def arrays_and_initial_values(
    opcode: str, operands: Sequence[Shape], noun: str
) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """Splits the operands of a reduction. Requires arrays of equal dimensions and a scalar for each."""
    check_arrays(opcode, operands)
    count, odd = divmod(len(operands), 2)
    if odd:
        raise ShapeError(f"{opcode} needs as many initial values as arrays, it has {len(operands)} operands")
    arrays, inits = operands[:count], operands[count:]
    dims = arrays[0].dims
    for number, (operand, init) in enumerate(zip(arrays, inits, strict=True)):
        if operand.dims != dims:
            raise ShapeError(f"{opcode}: {noun} {number} has dimensions {list(operand.dims)}, not {list(dims)}")
        if init.dims:
            raise ShapeError(f"{opcode}: initial value {number} must be a scalar, it is {text(init)}")
    return arrays, inits


def check_signature(what: str, computation: Computation, parameters: Sequence[Shape], result: Shape | None) -> None:
    """Requires that the called computation takes these parameters and, unless None, returns this result."""
    found = [p.shape for p in computation.parameters]
    name = f"{what} computation {computation.name}"
    if len(found) != len(parameters):
        raise ShapeError(f"{name} takes {len(found)} parameters, but gets {len(parameters)}")
    for number, (have, want) in enumerate(zip(found, parameters, strict=True)):
        if not have.compatible(want):
            raise ShapeError(f"{name}: parameter {number} is {text(have)}, but gets {text(want)}")
    if result is not None and not computation.root.shape.compatible(result):
        raise ShapeError(f"{name} returns {text(computation.root.shape)}, but must return {text(result)}")


def check_reducer(what: str, computation: Computation, inits: Sequence[Shape], arrays: Sequence[Shape]) -> None:
    """Requires that the computation combines scalars of the types of initial values, then elements of arrays, into one
    set of scalars, up to float precision.
    """
    scalars = [array(shape.element) for shape in (*inits, *arrays)]
    parameters = [p.shape for p in computation.parameters]
    name = f"{what}: the computation {computation.name}"
    if len(parameters) != len(scalars):
        raise ShapeError(f"{name} must take {len(scalars)} parameters, but takes {len(parameters)}")
    for number, (shape, want) in enumerate(zip(parameters, scalars, strict=True)):
        _check_scalar(f"{name}: parameter {number}", shape, want)
    root = computation.root.shape
    results = list(root.elements) if root.is_tuple else [root]
    if len(results) != len(inits) or (root.is_tuple and len(inits) == 1):
        expected = "a scalar" if len(inits) == 1 else f"{len(inits)} scalars"
        raise ShapeError(f"{name} must return {expected}, but returns {text(root)}")
    for number, (shape, want) in enumerate(zip(results, scalars, strict=False)):
        _check_scalar(f"{name}: result {number}", shape, want)


def _check_scalar(what: str, shape: Shape, want: Shape) -> None:
    same = shape.element is want.element or (shape.element.is_float and want.element.is_float)
    if not shape.is_scalar or not same:
        raise ShapeError(f"{what} is {text(shape)}, but must be {text(want)}")
