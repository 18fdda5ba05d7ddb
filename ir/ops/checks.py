"""Checks shared by the shape inference of many ops. Each raises ShapeError with the op's name and both values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..graph.op import ShapeError
from ..types.element_type import Kind
from ..types.shape import UNBOUNDED, Shape, merged_dims

WINDOW_HELP = "such as window={size=3x3 pad=1_1x1_1} for two dimensions"


def text(shape: Shape) -> str:
    """Returns a shape for messages, without layout."""
    return str(shape.without_layout())


def require_array(opcode: str, shape: Shape, what: str = "operand") -> None:
    """Requires an array, not a tuple, token or opaque."""
    if not shape.is_array:
        raise ShapeError(f"{opcode}: {what} must be an array, is {text(shape)}")


def require_static(opcode: str, *shapes: Shape) -> None:
    """Requires arrays without dynamic dimensions."""
    for shape in shapes:
        if shape.is_dynamic:
            raise ShapeError(f"{opcode}: dynamic dimensions are not supported by {opcode} yet: {text(shape)}")


def require_kind(opcode: str, shape: Shape, kinds: Collection[Kind], what: str = "operand") -> None:
    """Requires an array with one of these kinds of elements."""
    require_array(opcode, shape, what)
    if shape.element.kind not in kinds:
        names = [k.value for k in Kind if k in kinds]
        allowed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
        raise ShapeError(f"{opcode}: {what} must have {allowed} elements, is {text(shape)}")


def require_index(opcode: str, shape: Shape, what: str) -> None:
    """Requires a scalar integer."""
    if not shape.is_scalar or not shape.element.is_integer:
        raise ShapeError(f"{opcode}: {what} must be a scalar integer, is {text(shape)}")


def require_same_element(opcode: str, first: Shape, second: Shape, what: str = "operand") -> None:
    """Requires equal element types of two arrays."""
    if first.element is not second.element:
        raise ShapeError(f"{opcode}: {what} element types differ: {text(first)} and {text(second)}")


def require_rank(opcode: str, what: str, count: int, shape: Shape) -> None:
    """Requires one entry per dimension of the array. `what` names the attribute or list with `count` entries."""
    if count != shape.rank:
        raise ShapeError(f"{opcode}: {what} has {_entries(count)}, but {text(shape)} has {_dimensions(shape)}")


def require_dims(opcode: str, dims: Sequence[int], shape: Shape, what: str = "dimensions") -> None:
    """Requires distinct dimension numbers of the array."""
    for dim in dims:
        if not 0 <= dim < shape.rank:
            raise ShapeError(f"{opcode}: {what} contains {dim}, but {text(shape)} has {_dimensions(shape)}",
                             "they are numbered from 0")
    if len(set(dims)) != len(dims):
        raise ShapeError(f"{opcode}: {what} {_list(dims)} names a dimension twice")


def require_permutation(opcode: str, dims: Sequence[int], shape: Shape) -> None:
    """Requires a permutation of the array's dimensions."""
    if sorted(dims) != list(range(shape.rank)):
        raise ShapeError(f"{opcode}: dimensions {_list(dims)} does not permute the {shape.rank} of {text(shape)}",
                         f"they name each of 0 to {shape.rank - 1} once" if shape.rank else None)


def require_declared(opcode: str, declared: Shape | None) -> Shape:
    """Requires a declared array shape, which this op cannot infer, and returns it."""
    if declared is None:
        raise ShapeError(f"{opcode}: the result shape must be given")
    require_array(opcode, declared, "result")
    return declared


def elementwise_shape(opcode: str, operands: Sequence[Shape]) -> Shape:
    """Returns the common shape of the operands: an unbounded size takes another operand's bound.

    Operands may differ in layout and in dynamic dimensions: the result has the first layout and all dynamic dimensions.
    """
    first = operands[0]
    for other in operands[1:]:
        if first.dims == other.dims and first.element is other.element:
            continue
        dims = merged_dims(first.dims, other.dims)
        if dims is None or first.element is not other.element:
            raise ShapeError(f"{opcode}: operand shapes differ: {text(first)} and {text(other)}",
                             _help_to_match(first, other))
        first = replace(first, dims=dims, layout=None)  # as in XLA, where some size is unbounded
    if len(operands) > 1 and first.layout is not None:
        layout = first.layout.for_element(first.element) if UNBOUNDED not in first.dims else None
        first = first if layout is first.layout else replace(first, layout=layout)
    return with_dynamic(first, operands)


def _help_to_match(one: Shape, other: Shape) -> str | None:
    if one.dims == other.dims:
        return f"convert one of them, to {one.element.name} or {other.element.name}"
    if one.rank != other.rank or any(1 in pair for pair in zip(one.dims, other.dims, strict=True)):
        return "no op broadcasts by itself: broadcast one of them to the shape of the other"
    return None


def with_dynamic(shape: Shape, operands: Sequence[Shape]) -> Shape:
    """Returns `shape` with each dimension dynamic in which some operand of the same rank is dynamic."""
    marked = [o.dynamic for o in operands if any(o.dynamic) and o.rank == shape.rank]
    if not marked:
        return shape
    return replace(shape, dynamic=tuple(map(any, zip(*marked, strict=True))))


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _dimensions(shape: Shape) -> str:
    return "1 dimension" if shape.rank == 1 else f"{shape.rank} dimensions"


def _list(dims: Sequence[int]) -> str:
    return "{" + ",".join(map(str, dims)) + "}"
