"""Turns all-reduces of which each device reads only its part into reduce-scatters.

    before:  s = f32[8,4] all-reduce(x), replica_groups={{0,1,2,3}}
             p = f32[2,4] dynamic-slice(s, 2 * partition-id, 0)
    after:   p = f32[2,4] reduce-scatter(x), replica_groups={{0,1,2,3}}, dimensions={0}

It sends half of the bytes. The slice must be the only reader of the sum, and every device must read the part of its
place in its group: its offsets are computed for each device, from tables and arithmetic on the device number alike.
Parts in another order reorder the groups. A slice of several dimensions scatters the tiles in row-major order; padding
at the end, which Hloom writes for uneven tiles, is added before the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....ir.analysis.per_device import clamped_starts
from ....ir.graph.attributes import Dims
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import MONOID_OPS, reduction_monoid
from ....ir.ops.collectives import AllReduce, AllReduceAttributes, ReduceScatterAttributes
from ....ir.ops.shaping import TransposeAttributes
from ....ir.ops.slicing import DynamicSlice, Pad, PadAttributes, Slice
from ....ir.ops.structure import constant_array
from ....ir.sharding.replica_groups import Groups
from .base import Edits, MatchingRewrite, RewriteProgram, amount, is_plain_collective, only_user, time_text
from .groups import device_groups, positions


@dataclass(frozen=True)
class AllReduceToReduceScatter(MatchingRewrite["_Match"]):
    """Turns all-reduces that are only sliced into reduce-scatters."""

    name: ClassVar[str] = "all-reduce-to-reduce-scatter"
    stays: ClassVar[str] = "is not a reduce-scatter"

    def match(self, program: RewriteProgram, instruction: Instruction) -> _Match | str | None:
        return _match(program, instruction)

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Match) -> None:
        _emit(program, edits, instruction, found)


@dataclass(frozen=True, slots=True)
class _Match:
    """A slice of an all-reduce, perhaps a padded one. `counts` are tiles per dimension, `groups` in their order."""

    pad: Instruction | None
    slice: Instruction
    counts: Dims
    groups: Groups


def _match(program: RewriteProgram, reduced: Instruction) -> _Match | str | None:
    """Matches an all-reduce with one slice. Returns the match, or why it stays an all-reduce; None without slices."""
    if not isinstance(reduced.op, AllReduce):
        return None
    user = only_user(reduced)
    pad = user if user is not None and isinstance(user.op, Pad) else None
    if pad is not None:
        user = only_user(pad)
    if user is None or not isinstance(user.op, DynamicSlice) or user.operands[0] is not (pad or reduced):
        slices = [u for u in reduced.users if isinstance(u.op, DynamicSlice | Slice)]
        return f"{len(reduced.users)} instructions read it, not one slice alone" if slices else None
    if not is_plain_collective(reduced):
        return "it has several arrays, or an annotation"
    if pad is not None and not _pads_neutrally(pad, reduced):
        return "padding changes the sum, or is not at the end"
    groups = device_groups(reduced, program.module)
    place = positions(groups, program.devices)
    if place is None:
        return "its groups have different sizes, or not all devices"
    whole, tile = user.operands[0].shape.dims, user.shape.dims
    if any(not t or n % t for n, t in zip(whole, tile, strict=True)):
        return f"tiles of {list(tile)} do not divide {list(whole)}"
    counts = tuple(n // t for n, t in zip(whole, tile, strict=True))
    size = len(groups[0])
    if size < 2 or math.prod(counts) != size:
        return f"{math.prod(counts)} slices for groups of {size} devices"
    starts = clamped_starts(program.per_device, user, 1, tile)
    if starts is None:
        return "what a device reads depends on more than its number"
    if (starts % tile).any():
        return "a device reads across the borders of parts"
    number = np.asarray(np.ravel_multi_index(tuple((starts // tile).T), counts))
    ordered = _by_part(groups, number)
    if ordered is None:
        return "two devices of a group read the same part"
    return _Match(pad, user, counts, ordered)


def _by_part(groups: Groups, number: np.ndarray[Any, Any]) -> Groups | None:
    """Sorts the members of each group by the parts that they read; None unless each member reads another part."""
    found = tuple(tuple(sorted(group, key=lambda d: int(number[d]))) for group in groups)
    return found if all([int(number[d]) for d in g] == list(range(len(g))) for g in found) else None


def _pads_neutrally(pad: Instruction, reduced: Instruction) -> bool:
    """Whether padding and summing commute: combining the padding with itself does not change it."""
    amounts = pad.attributes_as(PadAttributes).padding.dims
    literal = constant_array(pad.operands[1])
    monoid = reduction_monoid(reduced.attributes_as(AllReduceAttributes).to_apply)
    if literal is None or monoid is None:
        return False
    if any(a.low or a.interior or a.high < 0 for a in amounts):
        return False
    return np.asarray(MONOID_OPS[monoid](literal, literal)).tobytes() == literal.tobytes()


def _emit(program: RewriteProgram, edits: Edits, reduced: Instruction, found: _Match) -> None:
    computation, groups = edits.computation, found.groups
    divided = [d for d, count in enumerate(found.counts) if count > 1]
    with computation.at(before=reduced):
        array = reduced.operands[0]
        if found.pad is not None:
            array = computation.add(found.pad.op, (array, found.pad.operands[1]), found.pad.attributes, like=found.pad)
        if len(divided) == 1:
            new = _scatter(program, reduced, array, divided[0], found.slice.shape.dims, groups)
        else:
            array = tiles_first(computation, array, found.counts)
            tiles = _scatter(program, reduced, array, 0, (1, *found.slice.shape.dims), groups)
            new = computation.build("reshape", tiles, shape=found.slice.shape.without_layout(), like=found.slice)
    whole = array.shape.byte_size
    times = [program.time(kind, whole, groups) for kind in ("all-reduce", "reduce-scatter")]
    program.remark(
        reduced, f"becomes a reduce-scatter: {amount(found.slice.shape.byte_size)} of {amount(whole)} are read, "
        f"{time_text(times[1])} in place of {time_text(times[0])}",
    )  # fmt: skip
    edits.replace(found.slice, new)


def _scatter(
    program: RewriteProgram, reduced: Instruction, array: Instruction, dim: int, dims: Dims, groups: Groups
) -> Instruction:
    computation = reduced.parent
    assert computation is not None
    given = reduced.attributes_as(AllReduceAttributes)
    attributes = ReduceScatterAttributes(
        dimensions=(dim,), to_apply=given.to_apply, **program.grouping.attributes(groups)
    )
    new = computation.add("reduce-scatter", (array,), attributes, array.shape.with_dims(dims), like=reduced)
    new.frontend_attributes = reduced.frontend_attributes
    return new


def tiles_first(computation: Computation, array: Instruction, counts: Dims) -> Instruction:
    """Cuts an array into a grid of `counts` tiles and returns them as [tiles, *tile], in row-major order."""
    tile = tuple(n // c for n, c in zip(array.shape.dims, counts, strict=True))
    split = tuple(x for pair in zip(counts, tile, strict=True) for x in pair)
    cut = computation.build("reshape", array, shape=array.shape.with_dims(split), like=array)
    order = (*range(0, 2 * len(tile), 2), *range(1, 2 * len(tile), 2))
    turned = computation.add("transpose", (cut,), TransposeAttributes(order), like=array)
    return computation.build("reshape", turned, shape=array.shape.with_dims((math.prod(counts), *tile)), like=array)
