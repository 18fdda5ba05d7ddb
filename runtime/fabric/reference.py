"""Computes each collective in numpy, for the members of a group.

This is the reference: the simulator always runs it, the MPI fabric where MPI has no collective of the same meaning.
Members combine in group order, so all get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.graph.op import NotEvaluable
from .collective import Collective, Operands
from .slices import cut_slices, fill_slices, ragged_all_to_all

Array = np.ndarray[Any, Any]


def perform(collective: Collective, members: list[Operands]) -> list[Operands]:
    """Computes the results of all members of a group from their operands in group order. Permutes are separate."""
    if collective.meaning is not None:
        return collective.meaning(members)
    meaning = _REFERENCE.get(collective.kind)
    if meaning is None:
        raise NotEvaluable(f"{collective.kind} cannot be run")
    results = meaning(collective, members)
    for array, shape in zip(results[0], collective.results, strict=True):
        if array.shape != shape.dims:
            have = list(array.shape)
            collective.fail(f"a group of {len(members)} gives dimensions {have}, the instruction says {shape}")
    return results


def outgoing_pieces(collective: Collective, operands: Operands, slot: int) -> Operands:
    """Returns what the source of a permute sends over its pair number `slot`."""
    return cut_slices(collective.instruction, operands, slot) if collective.is_in_place else operands


def permute_result(collective: Collective, operands: Operands, arrived: Sequence[tuple[int, Operands]]) -> Operands:
    """Returns the results of a permute on a device: what arrived over pairs with these slots, else zeros."""
    if collective.is_in_place:
        return fill_slices(collective.instruction, operands, arrived)
    return arrived[0][1] if arrived else collective.zeros(operands)


def reduce_members(collective: Collective, members: list[Operands]) -> Operands:
    """Combines all members' operands, from left to right."""
    assert collective.reducer is not None
    total = members[0]
    for operands in members[1:]:
        total = collective.reducer(total, operands)
    return total


def split_evenly(array: Array, parts: int, dimension: int, collective: Collective) -> list[Array]:
    """Cuts the array into equal parts along a dimension."""
    if array.shape[dimension] % parts:
        collective.fail(f"dimension {dimension} of size {array.shape[dimension]} cannot be cut for a group of {parts}")
    return np.split(array, parts, dimension)


def _all_reduce(collective: Collective, members: list[Operands]) -> list[Operands]:
    return [reduce_members(collective, members)] * len(members)


def _reduce_scatter(collective: Collective, members: list[Operands]) -> list[Operands]:
    assert collective.dimension is not None
    total, count = reduce_members(collective, members), len(members)
    parts = [split_evenly(array, count, collective.dimension, collective) for array in total]
    return [[part[i] for part in parts] for i in range(count)]


def _all_gather(collective: Collective, members: list[Operands]) -> list[Operands]:
    assert collective.dimension is not None
    whole = [np.concatenate(arrays, collective.dimension) for arrays in zip(*members, strict=True)]
    return [whole] * len(members)


def _all_to_all(collective: Collective, members: list[Operands]) -> list[Operands]:
    count, dim = len(members), collective.dimension
    if dim is None:
        if len(members[0]) != count:
            collective.fail(f"a group of {count} needs {count} operands, not {len(members[0])}")
        return [[operands[i] for operands in members] for i in range(count)]
    parts = [[split_evenly(array, count, dim, collective) for array in operands] for operands in members]
    return [
        [np.concatenate([part[v][i] for part in parts], dim) for v in range(len(members[0]))] for i in range(count)
    ]


def _broadcast(collective: Collective, members: list[Operands]) -> list[Operands]:
    return [members[0]] * len(members)


_REFERENCE: dict[str, Callable[[Collective, list[Operands]], list[Operands]]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "ragged-all-to-all": ragged_all_to_all,
}
