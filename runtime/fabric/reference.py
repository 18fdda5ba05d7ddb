"""Collectives: what each computes, in numpy, for the members of a group.

This is the reference: the simulator runs it as it is, the MPI runtime wherever MPI has no collective of the same
meaning. Members combine in group order, so all get the same bits. The words are those of the StableHLO specification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.graph.monoid import elementwise_kernel, reduction_monoid
from ...ir.graph.op import Compile, Kernel, NotEvaluable
from ...ir.sharding.replica_groups import Groups, enumerate_groups
from ...ir.types.shape import Shape
from .process_grid import Pairs, ProcessGrid, group_mode
from .slices import cut_slices, fill_slices, ragged_all_to_all

Array = np.ndarray[Any, Any]
Operands = list[Array]  # the operands, or the results, of one device


Send = tuple[int, int, int]  # source, target, and the how many-th pair of this source it is


@dataclass(frozen=True, eq=False)
class Collective:
    """One collective instruction on a process grid.

    `groups` (or, for a permute, `sends`) hold device numbers. `dimension` is the one that is gathered, scattered or
    split; None for the tuple form of all-to-all. `reducer` combines two lists of operands.
    """

    instruction: Instruction
    kind: str
    grid: ProcessGrid
    groups: Groups = ()
    sends: tuple[Send, ...] = ()
    dimension: int | None = None
    reducer: Callable[[Operands, Operands], Operands] | None = None
    monoid: Monoid | None = None

    @staticmethod
    def of(instruction: Instruction, grid: ProcessGrid, compile: Compile) -> Collective:
        """The collective of an instruction. Raises CompileError if its groups do not fit the grid."""
        kind = instruction.opcode
        attributes: Any = instruction.attributes
        dims = getattr(attributes, "dimensions", None)
        to_apply = getattr(attributes, "to_apply", None)
        groups, pairs = _members(instruction, kind, grid)
        return Collective(
            instruction,
            kind,
            grid,
            groups,
            _sends(pairs),
            dims[0] if dims else None,
            _reducer(instruction, compile) if to_apply is not None else None,
            reduction_monoid(to_apply) if to_apply is not None else None,
        )

    @property
    def results(self) -> list[Shape]:
        """The shapes of the results that each device gets."""
        return list(self.instruction.shape.leaves())

    def perform(self, members: list[Operands]) -> list[Operands]:
        """The results of all members of a group (not for permutes), from their operands in group order."""
        results = _meaning(self)(self, members)
        for array, shape in zip(results[0], self.results, strict=True):
            if array.shape != shape.dims:
                have = list(array.shape)
                self.fail(f"a group of {len(members)} gives dimensions {have}, the instruction says {shape}")
        return results

    def sent(self, operands: Operands, slot: int) -> Operands:
        """What a source of a permute sends over its pair number `slot`."""
        return cut_slices(self.instruction, operands, slot) if self.is_in_place else operands

    def received(self, operands: Operands, arrived: Sequence[tuple[int, Operands]]) -> Operands:
        """The results of a permute on a device: what has come over pairs with these slots, else zeros."""
        if self.is_in_place:
            return fill_slices(self.instruction, operands, arrived)
        return arrived[0][1] if arrived else self.zeros()

    @property
    def is_in_place(self) -> bool:
        """Whether it is a permute that fills slices of an operand."""
        return bool(getattr(self.instruction.attributes, "slice_sizes", ()))

    def zeros(self) -> Operands:
        """What a device gets that nobody sends anything to."""
        return [np.zeros(shape.dims, shape.element.numpy) for shape in self.results]

    def fail(self, message: str) -> None:
        """Reports an error at the instruction."""
        fail(f"{self.kind} {self.instruction.name}: {message}", self.instruction.location)


def _members(instruction: Instruction, kind: str, grid: ProcessGrid) -> tuple[Groups, Pairs]:
    attributes: Any = instruction.attributes
    has_channel = bool(getattr(attributes, "channel_id", None))
    gathers = kind in ("all-reduce", "all-gather", "reduce-scatter")
    mode = group_mode(gathers, has_channel, bool(getattr(attributes, "use_global_device_ids", False)))
    try:
        if kind == "collective-permute":
            most = len(attributes.slice_sizes) // instruction.operands[0].shape.num_leaves or 1
            return (), grid.process_pairs(mode, attributes.source_target_pairs, most)
        lists = enumerate_groups(attributes.replica_groups, grid.count(mode))
        return grid.process_groups(mode, lists), ()
    except ValueError as error:
        hint = None if has_channel else "without channel_id the numbers count replicas"
        if grid.size == 1:
            hint = "the header names no devices: say num_partitions=N, or replica_count=N"
        fail(f"{kind} {instruction.name}: {error}", instruction.location, hint)


def _sends(pairs: Pairs) -> tuple[Send, ...]:
    met: Counter[int] = Counter()
    sends: list[Send] = []
    for source, target in pairs:
        sends.append((source, target, met[source]))
        met[source] += 1
    return tuple(sends)


def _reducer(instruction: Instruction, compile: Compile) -> Callable[[Operands, Operands], Operands]:
    attributes: Any = instruction.attributes
    kernel = elementwise_kernel(attributes.to_apply, compile)
    return lambda a, b: [kernel(x, y) for x, y in zip(a, b, strict=True)]


def reduce_members(collective: Collective, members: list[Operands]) -> Operands:
    """The combination of all members' operands, from left to right."""
    assert collective.reducer is not None
    total = members[0]
    for operands in members[1:]:
        total = collective.reducer(total, operands)
    return total


def split_parts(array: Array, parts: int, dimension: int, collective: Collective) -> list[Array]:
    """The array cut into equal parts along a dimension."""
    if array.shape[dimension] % parts:
        collective.fail(f"dimension {dimension} of size {array.shape[dimension]} cannot be cut for a group of {parts}")
    return np.split(array, parts, dimension)


def _all_reduce(collective: Collective, members: list[Operands]) -> list[Operands]:
    return [reduce_members(collective, members)] * len(members)


def _reduce_scatter(collective: Collective, members: list[Operands]) -> list[Operands]:
    assert collective.dimension is not None
    total, count = reduce_members(collective, members), len(members)
    parts = [split_parts(array, count, collective.dimension, collective) for array in total]
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
    parts = [[split_parts(array, count, dim, collective) for array in operands] for operands in members]
    return [
        [np.concatenate([part[v][i] for part in parts], dim) for v in range(len(members[0]))] for i in range(count)
    ]


def _broadcast(collective: Collective, members: list[Operands]) -> list[Operands]:
    return [members[0]] * len(members)


_MEANING: dict[str, Callable[[Collective, list[Operands]], list[Operands]]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
    "ragged-all-to-all": ragged_all_to_all,
}


def _meaning(collective: Collective) -> Kernel:
    meaning = _MEANING.get(collective.kind)
    if meaning is None:
        raise NotEvaluable(f"{collective.kind} cannot be run")
    return meaning


class LocalFabric:
    """All devices in this process, in lock step: a collective is complete as soon as it starts.

    A group of which only some devices arrive (because the others took another branch, or left the loop) is an error of
    the program: on a machine it would hang.
    """

    def start(self, collective: Collective, devices: Sequence[int], operands: list[Operands]) -> list[Operands]:
        """The results of each device. Raises CompileError for an incomplete group."""
        arrived = dict(zip(devices, operands, strict=True))
        if collective.kind == "collective-permute":
            return self._permute(collective, devices, arrived)
        results: dict[int, Operands] = {}
        made: dict[tuple[int, ...], list[Operands]] = {}  # groups with the same arrays share one outcome
        for group in collective.groups:
            if any(device in arrived for device in group):
                check_complete(collective, group, arrived)
                members = [arrived[device] for device in group]
                key = tuple(id(array) for operands in members for array in operands)
                if key not in made:
                    made[key] = collective.perform(members)
                results.update(zip(group, made[key], strict=True))
        return [results[d] if d in results else left_out(collective, d) for d in devices]

    def wait(self, handle: list[Operands]) -> list[Operands]:
        """The results of each device."""
        return handle

    def _permute(
        self, collective: Collective, devices: Sequence[int], arrived: dict[int, Operands]
    ) -> list[Operands]:
        results: dict[int, list[tuple[int, Operands]]] = {}
        for source, target, slot in collective.sends:
            if source in arrived or target in arrived:
                check_complete(collective, (source, target), arrived)
                results.setdefault(target, []).append((slot, collective.sent(arrived[source], slot)))
        return [collective.received(arrived[d], results.get(d, ())) for d in devices]


def check_complete(collective: Collective, group: Sequence[int], arrived: dict[int, Operands]) -> None:
    """Reports the devices of a group that do not take part."""
    missing = [device for device in group if device not in arrived]
    if missing:
        collective.fail(
            f"group {{{','.join(map(str, group))}}} is incomplete: {numbered(missing)} took another way "
            f"(a branch or the end of a loop) and would never join {numbered(sorted(set(group) & set(arrived)))}"
        )


def left_out(collective: Collective, device: int) -> Operands:
    """What a device in no group gets: zeros from a broadcast, an error from all else."""
    if collective.kind != "collective-broadcast":
        collective.fail(f"device {device} is in no replica group")
    return collective.zeros()


def numbered(devices: Sequence[int]) -> str:
    """`device 3` or `devices 1, 2`."""
    return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"
