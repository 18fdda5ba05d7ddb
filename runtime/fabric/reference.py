"""Computes each collective in numpy, for the members of a group.

This is the reference: the simulator always runs it, ranks that share memory too, and other ranks where MPI has no
collective of the same meaning. Members combine in group order, so all get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.graph.op import NotEvaluable
from .collective import GridCollective, Operands
from .slices import cut_slices, fill_slices, ragged_all_to_all

Array = np.ndarray[Any, Any]


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


_REFERENCE: dict[str, Callable[[GridCollective, list[Operands], Sequence[int]], list[Operands]]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "ragged-all-to-all": ragged_all_to_all,
}
