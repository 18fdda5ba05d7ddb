"""Moves without a copy: their result is a view of their operand, in another layout."""

from __future__ import annotations

from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import sources_of
from ...ir.graph.source import RowMajor, Source
from .step import StridedLayout

View = tuple[int, StridedLayout]  # the offset of the first element in the operand, in elements, and the layout


def view_of(instruction: Instruction, operand: StridedLayout) -> View | None:
    """Returns the layout of an op's result as a view of its operand; None if it is none."""
    sources = sources_of(instruction)
    if sources is None or len(sources) != 1 or len(instruction.operands) != 1:
        return None
    return _through(sources[0], operand, instruction.shape.dims)


def layout_before(instruction: Instruction) -> StridedLayout | None:
    """Returns the layout of the operand that makes the result of a transposition dense; None for other ops."""
    sources = sources_of(instruction)
    source = sources[0] if sources is not None and len(sources) == 1 else None
    if source is None or isinstance(source, RowMajor):
        return None
    dims, dense = instruction.operands[0].shape.dims, StridedLayout.dense(instruction.shape.dims)
    if sorted(along.dim for along in source) != list(range(len(dense.dims))):
        return None
    if any(along.stride != 1 or dims[d] != dense.dims[along.dim] for d, along in enumerate(source)):
        return None
    return StridedLayout(dims, tuple(dense.strides[along.dim] for along in source))


def _through(source: Source, operand: StridedLayout, dims: tuple[int, ...]) -> View | None:
    if isinstance(source, RowMajor):
        strides = _reshaped(operand, dims)
        return None if strides is None else (0, StridedLayout(dims, strides))
    strides, offset = [0] * len(dims), 0
    for along, stride in zip(source, operand.strides, strict=True):
        strides[along.dim] += along.stride * stride
        offset += along.offset * stride
    return offset, StridedLayout(dims, tuple(strides))


def _reshaped(operand: StridedLayout, dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the strides of a reshape; None if it is no view. A dimension of the result has a stride if it lies in one
    run of the operand's dimensions that are contiguous in memory.
    """
    runs = _runs(operand)
    strides: list[int] = []
    size, stride = runs.pop() if runs else (1, 1)
    for n in reversed(dims):
        if n == 1:
            strides.append(stride)
            continue
        if size == 1 and runs:
            size, stride = runs.pop()
        if size % n:
            return None
        strides.append(stride)
        size, stride = size // n, stride * n
    return tuple(reversed(strides))


def _runs(layout: StridedLayout) -> list[tuple[int, int]]:
    """Returns size and stride of the dimensions, merged where strides nest."""
    runs: list[tuple[int, int]] = []
    for n, stride in zip(layout.dims, layout.strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * stride:
            runs[-1] = runs[-1][0] * n, stride
        else:
            runs.append((n, stride))
    return runs
