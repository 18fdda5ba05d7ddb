"""Computes each collective in numpy, for the members of a group.

This is the reference: the simulator always runs it, ranks that share memory too, and other ranks where MPI has no
collective of the same meaning. Members combine in group order, so all get the same bits. Operands are the leaves of the
instruction's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.op import NotEvaluable
from ...ir.types.literal import Array
from .collective import GridCollective, Operands

Part = tuple[int, int, list[int], tuple[int, ...]]  # buffer, slice of that buffer, start indices, sizes


def perform(collective: GridCollective, members: list[Operands], wanted: Sequence[int] | None = None) -> list[Operands]:
    """Computes the results of the `wanted` members of a group (indices; None: of all) from the operands of all members
    in group order. Permutes are separate.
    """
    wanted = range(len(members)) if wanted is None else wanted
    if collective.meaning is not None:
        everything = collective.meaning(members)
        return [everything[i] for i in wanted]
    meaning = _REFERENCE.get(collective.kind)
    if meaning is None:
        raise NotEvaluable(f"{collective.kind} cannot be run")
    results = meaning(collective, members, wanted)
    for array, shape in zip(results[0], collective.results, strict=True):
        if array.shape != shape.dims:
            have = list(array.shape)
            collective.fail(f"a group of {len(members)} gives dimensions {have}, the instruction says {shape}")
    return results


def outgoing_pieces(collective: GridCollective, operands: Operands, slot: int) -> Operands:
    """Returns the arrays that the source of a permute sends over its pair number `slot`."""
    return cut_slices(collective.instruction, operands, slot) if collective.is_in_place else operands


def permute_result(collective: GridCollective, operands: Operands, arrived: Sequence[tuple[int, Operands]]) -> Operands:
    """Returns the results of a permute on a device: the data received over pairs with these slots, else zeros."""
    if collective.is_in_place:
        return fill_slices(collective.instruction, operands, arrived)
    return arrived[0][1] if arrived else collective.zeros(operands)


def reduce_members(collective: GridCollective, members: list[Operands]) -> Operands:
    """Combines all members' operands, from left to right."""
    assert collective.reducer is not None
    total = members[0]
    for operands in members[1:]:
        total = collective.reducer(total, operands)
    return total


def split_evenly(array: Array, parts: int, dimension: int, collective: GridCollective) -> list[Array]:
    """Cuts the array into equal parts along a dimension."""
    return [one_part(array, index, parts, dimension, collective) for index in range(parts)]


def one_part(array: Array, index: int, parts: int, dimension: int, collective: GridCollective) -> Array:
    """Returns one of the equal parts of an array along a dimension."""
    size, rest = divmod(array.shape[dimension], parts)
    if rest:
        collective.fail(f"dimension {dimension} of size {array.shape[dimension]} cannot be cut for a group of {parts}")
    return array[(slice(None),) * dimension + (slice(index * size, (index + 1) * size),)]


def _all_reduce(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    return [reduce_members(collective, members)] * len(wanted)


def _reduce_scatter(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    count = len(members)
    if len(wanted) == count:
        whole = _parts(collective, reduce_members(collective, members), count)
        return [[part[i] for part in whole] for i in wanted]
    return [reduce_members(collective, [_part(collective, operands, i, count) for operands in members]) for i in wanted]


def _all_gather(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    assert collective.dimension is not None
    whole = [np.concatenate(arrays, collective.dimension) for arrays in zip(*members, strict=True)]
    return [whole] * len(wanted)


def _all_to_all(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    count, dim = len(members), collective.dimension
    if dim is None:
        if len(members[0]) != count:
            collective.fail(f"a group of {count} needs {count} operands, not {len(members[0])}")
        return [[operands[i] for operands in members] for i in wanted]
    return [
        [np.concatenate(v, dim) for v in zip(*[_part(collective, x, i, count) for x in members], strict=True)]
        for i in wanted
    ]


def _broadcast(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    return [members[0]] * len(wanted)


def _parts(collective: GridCollective, operands: Operands, count: int) -> list[list[Array]]:
    """Cuts each operand into equal parts along the collective's dimension."""
    assert collective.dimension is not None
    return [split_evenly(array, count, collective.dimension, collective) for array in operands]


def _part(collective: GridCollective, operands: Operands, index: int, count: int) -> Operands:
    """Returns one of `count` equal parts of each operand along the collective's dimension."""
    assert collective.dimension is not None
    return [one_part(array, index, count, collective.dimension, collective) for array in operands]


def _slices(instruction: Instruction, operands: Operands, which: int) -> tuple[Operands, list[Part]]:
    """Returns the buffers of an in-place permute (`which` 0: input, 1: output) and its slices in them, starts clamped.
    """
    leaves = iter(operands)
    buffers, outputs, *starts = [list(islice(leaves, o.shape.num_leaves)) for o in instruction.operands]
    chosen = outputs if which else buffers
    attributes: Any = instruction.attributes
    sizes: tuple[tuple[int, ...], ...] = attributes.slice_sizes
    each, indices = len(sizes) // len(buffers), iter(starts[which])
    parts: list[Part] = []
    for number, size in enumerate(sizes):
        buffer = number // each
        room = chosen[buffer].shape
        # As in dynamic-slice, a start is clamped so that the slice fits.
        start = [min(max(int(next(indices)), 0), n - m) for n, m in zip(room, size, strict=True)]
        parts.append((buffer, number % each, start, size))
    return chosen, parts


def _region(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))


def cut_slices(instruction: Instruction, operands: Operands, slot: int) -> Operands:
    """Returns a slice of each buffer that a source sends over its pair number `slot`."""
    buffers, parts = _slices(instruction, operands, 0)
    return [buffers[b][_region(start, size)] for b, number, start, size in parts if number == slot]


def fill_slices(instruction: Instruction, operands: Operands, arrived: Sequence[tuple[int, Operands]]) -> Operands:
    """Returns the outputs of a device, filled with the slices that arrived over pairs with these slots."""
    buffers, parts = _slices(instruction, operands, 1)
    results = [buffer.copy() for buffer in buffers]
    for slot, pieces in arrived:
        own = [part for part in parts if part[1] == slot]
        for piece, (buffer, _, start, size) in zip(pieces, own, strict=True):
            results[buffer][_region(start, size)] = piece
    return results


def ragged_all_to_all(collective: GridCollective, members: list[Operands], wanted: Sequence[int]) -> list[Operands]:
    """Copies rows of every input into the outputs of the `wanted` members, in the order of the group."""
    results = {i: members[i][1].copy() for i in wanted}
    lists = [[np.ravel(array).astype(np.int64).tolist() for array in operands[2:]] for operands in members]
    count, each = len(members), len(lists[0][0]) // len(members)
    if each * count != len(lists[0][0]):
        collective.fail(f"lists of {len(lists[0][0])} entries for a group of {count}")
    for source, (starts, sizes, places, _) in enumerate(lists):
        rows = members[source][0]
        for number in range(count * each):
            target, one = divmod(number, each)
            expected = lists[target][3][source * each + one]
            start, size, place = starts[number], sizes[number], places[number]
            what = f"member {source} of the group sends {size} rows to member {target}"
            if size != expected:
                collective.fail(f"{what}, which expects {expected}")
            if min(start, size, place) < 0 or start + size > len(rows):
                collective.fail(f"{what} from row {start} on, its input has {len(rows)}")
            if place + size > len(members[target][1]):
                collective.fail(f"{what} for row {place} on, the output has {len(members[target][1])}")
            if target in results:
                results[target][place : place + size] = rows[start : start + size]
    return [[results[i]] for i in wanted]


_REFERENCE: dict[str, Callable[[GridCollective, list[Operands], Sequence[int]], list[Operands]]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "ragged-all-to-all": ragged_all_to_all,
}
