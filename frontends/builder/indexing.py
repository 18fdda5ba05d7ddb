"""Indexing of instructions as numpy does it: integers, slices, new axes, an ellipsis, computed integers, one array.

An index that is computed, or an array of indices, is clamped to the valid ones, as in XLA: nothing can fail at run
time. Indices that Python knows are checked, and count from the end if they are negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.types.element_type import PRED, S32
from .emission import convert, reshape, shown
from .tracing import emit, literal, scalar

Index = Any
"""An int, a slice, None, an ellipsis, or integers as an instruction or a numpy array."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The treatment of one dimension: the slice that is kept, then the index that removes or replaces the dimension."""

    limits: tuple[int, int, int]
    backwards: bool = False
    index: Instruction | None = None
    dropped: bool = False


def index(x: Instruction, key: Sequence[Index]) -> Instruction:
    """Returns `x[key]`. Raises CompileError for keys that do not fit."""
    entries, result = _entries(x, key)
    gathered = [d for d, e in enumerate(entries) if e.index is not None and e.index.shape.rank]
    if len(gathered) > 1:
        fail("an index may hold one array of integers", help="take elements along one axis after the other")
    if any(e.limits != (0, size, 1) for e, size in zip(entries, x.shape.dims)):
        x = emit("slice", x, slice=[e.limits for e in entries])
    if backwards := tuple(d for d, e in enumerate(entries) if e.backwards):
        x = emit("reverse", x, dimensions=backwards)
    starts = {d: e.index for d, e in enumerate(entries) if e.index is not None and not e.index.shape.rank}
    if starts:
        x = dynamic_slice(x, [starts.get(d) for d in range(x.shape.rank)],
                          [1 if d in starts else size for d, size in enumerate(x.shape.dims)])
    sizes: list[tuple[int, ...]] = [() if e.dropped else (size,) for e, size in zip(entries, x.shape.dims)]
    if gathered:
        (dim,) = gathered
        places = entries[dim].index
        assert places is not None
        x, sizes[dim] = take(x, places, dim), places.shape.dims
    dims = [size for n in result for size in ((1,) if n is None else sizes[n])]
    return reshape(x, tuple(dims))


def _entries(x: Instruction, key: Sequence[Index]) -> tuple[list[_Entry], list[int | None]]:
    """Returns one entry per dimension of x, and the dimensions of x or None for new axes, in the result's order."""
    rank, used = x.shape.rank, sum(part is not None and part is not Ellipsis for part in key)
    if used > rank:
        fail(f"{used} indices for {shown(x)}, which has {rank} dimensions")
    rest: list[Index] = [slice(None)] * (rank - used)
    at = next((n for n, part in enumerate(key) if part is Ellipsis), len(key))
    if any(part is Ellipsis for part in key[at + 1 :]):
        fail("an index may hold one ellipsis")
    entries: list[_Entry] = []
    result: list[int | None] = []
    for part in [*key[:at], *rest, *key[at + 1 :]]:
        if part is None:
            result.append(None)
            continue
        dim = len(entries)
        entries.append(_entry(x, dim, part))
        result.append(dim)
    _check_order(entries)
    return entries, result


def _entry(x: Instruction, dim: int, part: Index) -> _Entry:
    size = x.shape.dims[dim]
    if isinstance(part, np.ndarray):
        part = known_places(f"dimension {dim} of {shown(x)}", cast("np.ndarray[Any, Any]", part), size)
    if isinstance(part, Instruction):
        if not part.shape.element.is_integer:
            fail(f"an index must have integer elements, it is {shown(part)}",
                 help="where(mask, x, 0) replaces a mask: shapes cannot depend on values"
                 if part.shape.element is PRED else "x.astype('s32') makes integers")
        return _Entry((0, size, 1), index=part, dropped=not part.shape.rank)
    if isinstance(part, slice):
        limits = cast("slice[Any, Any, Any]", part)
        if any(isinstance(bound, Instruction) for bound in (limits.start, limits.stop, limits.step)):
            fail("a slice has fixed bounds, since shapes cannot depend on values",
                 help="dynamic_slice(x, starts, sizes) begins at a computed place")
        start, limit, step = limits.indices(size)
        count = len(range(start, limit, step))
        if step > 0:
            return _Entry((start, max(start, limit), step) if count else (0, 0, 1))
        last = start + (count - 1) * step
        return _Entry((last, start + 1, -step) if count else (0, 0, 1), backwards=count > 1)
    number = int(part)
    if not -size <= number < size:
        fail(f"index {number} is out of range for dimension {dim} of {shown(x)}")
    return _Entry((number % size, number % size + 1, 1), dropped=True)


def known_places(what: str, places: np.ndarray[Any, Any], size: int) -> Instruction:
    """Returns indices that Python knows, counted from the front. Raises CompileError for wrong ones."""
    if places.dtype.kind not in "iu":
        fail(f"an index must have integer elements, it has {places.dtype}")
    if places.size and not -size <= int(places.min()) <= int(places.max()) < size:
        fail(f"an index is out of range for {what}: {places.min()} to {places.max()}")
    return emit("constant", literal=literal(np.where(places < 0, places + size, places), S32))


def _check_order(entries: Sequence[_Entry]) -> None:
    """Refuses indices whose dimensions numpy reorders: an integer and an array of integers that are not adjacent."""
    advanced = [d for d, e in enumerate(entries) if e.dropped or e.index is not None]
    has_array = any(e.index is not None and e.index.shape.rank for e in entries)
    if has_array and advanced != list(range(advanced[0], advanced[-1] + 1)):
        fail("an integer and an array of integers stand apart in an index", help="index in two steps: x[0][:, places]")


def take(x: Instruction, places: Instruction, dim: int) -> Instruction:
    """Returns the elements at computed places of one dimension: those of x before it, of `places`, and of x after it.
    """
    dims, count = x.shape.dims, places.shape.rank
    sizes = (*dims[:dim], min(1, dims[dim]), *dims[dim + 1 :])
    if not dims[dim]:
        fail(f"nothing can be taken from dimension {dim} of {shown(x)}")
    offsets = (*range(dim), *range(dim + count, len(dims) - 1 + count))
    return emit("gather", x, places, offset_dims=offsets, collapsed_slice_dims=(dim,), start_index_map=(dim,),
                index_vector_dim=count, slice_sizes=sizes)  # fmt: skip


def take_along(x: Instruction, places: Instruction, dim: int) -> Instruction:
    """Returns for each place of `places` the element of x with that index in `dim` and the same in all others."""
    batch = tuple(d for d in range(x.shape.rank) if d != dim)
    return emit("gather", x, reshape(places, (*places.shape.dims, 1)), offset_dims=(), collapsed_slice_dims=(dim,),
                start_index_map=(dim,), operand_batching_dims=batch, start_indices_batching_dims=batch,
                index_vector_dim=x.shape.rank, slice_sizes=(1,) * x.shape.rank)  # fmt: skip


def dynamic_slice(x: Instruction, starts: Sequence[Instruction | None], sizes: Sequence[int]) -> Instruction:
    """Returns a slice of these sizes from a computed place. None begins at 0."""
    return emit("dynamic-slice", x, *same_starts(starts), dynamic_slice_sizes=tuple(sizes))


def same_starts(starts: Sequence[Instruction | None]) -> list[Instruction]:
    """Returns start indices of one type."""
    elements = {s.shape.element for s in starts if s is not None}
    element = elements.pop() if len(elements) == 1 else S32
    return [scalar(np.int32(0), element) if s is None else convert(s, element) for s in starts]
