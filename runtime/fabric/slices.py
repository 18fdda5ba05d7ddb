"""Computes collectives on slices: the ragged all-to-all, and permutes that send slices and fill slices of an operand.

This is reference code like `reference`. Operands are the leaves of the instruction's operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from .collective import GridCollective, Operands

Array = np.ndarray[Any, Any]
Part = tuple[int, int, list[int], tuple[int, ...]]  # buffer, slice of that buffer, start indices, sizes


def _parts(instruction: Instruction, operands: Operands, which: int) -> tuple[Operands, list[Part]]:
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
    buffers, parts = _parts(instruction, operands, 0)
    return [buffers[b][_region(start, size)] for b, number, start, size in parts if number == slot]


def fill_slices(instruction: Instruction, operands: Operands, arrived: Sequence[tuple[int, Operands]]) -> Operands:
    """Returns the outputs of a device, filled with the slices that arrived over pairs with these slots."""
    buffers, parts = _parts(instruction, operands, 1)
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
