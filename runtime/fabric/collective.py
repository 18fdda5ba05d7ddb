"""Describes collectives on a process grid: their members, their dimension, and the reducer that combines values.

The reference or a fabric's own code computes them. The terms are those of the StableHLO specification.
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
from ...ir.graph.op import Compile
from ...ir.sharding.replica_groups import Groups
from ...ir.tools.process_grid import Pairs, ProcessGrid
from ...ir.types.literal import Array
from ...ir.types.shape import Shape

Operands = list[Array]  # the operands, or the results, of one device
Group = tuple[int, ...]  # device numbers
Meaning = Callable[[list[Operands]], list[Operands]]
Send = tuple[int, int, int]  # source, target, index of this pair among those of its source


@dataclass(frozen=True, eq=False)
class GridCollective:
    """One collective instruction on a process grid.

    `results` are the shapes of each device's results. `groups` (for a permute, `sends`) hold device numbers.
    `dimension` is the gathered, scattered or split one; None for the tuple form of all-to-all. `reducer` combines two
    lists of operands. `meaning`, given where `kind` does not imply one, computes the results of all members of a group
    from their operands.
    """

    instruction: Instruction
    kind: str
    results: tuple[Shape, ...]
    groups: Groups = ()
    sends: tuple[Send, ...] = ()
    dimension: int | None = None
    reducer: Callable[[Operands, Operands], Operands] | None = None
    monoid: Monoid | None = None
    meaning: Meaning | None = None

    @staticmethod
    def of(instruction: Instruction, grid: ProcessGrid, compile: Compile) -> GridCollective:
        """Creates the collective of an instruction. Raises CompileError if its groups do not fit the grid."""
        kind = instruction.opcode
        attributes: Any = instruction.attributes
        dims = getattr(attributes, "dimensions", None)
        to_apply = getattr(attributes, "to_apply", None)
        groups, pairs = _members(instruction, kind, grid)
        return GridCollective(
            instruction,
            kind,
            tuple(instruction.shape.leaves()),
            groups,
            _sends(pairs),
            dims[0] if dims else None,
            _reducer(instruction, compile) if to_apply is not None else None,
            reduction_monoid(to_apply) if to_apply is not None else None,
        )

    @property
    def is_in_place(self) -> bool:
        """Whether this is a permute that fills slices of an operand."""
        return bool(getattr(self.instruction.attributes, "slice_sizes", ()))

    @property
    def is_all_reduce(self) -> bool:
        """Whether every member gets the elementwise combination of all members' operands."""
        return self.reducer is not None and self.dimension is None and self.meaning is None

    def sources(self, group: Sequence[int]) -> Sequence[int]:
        """Returns the members of a group whose operands the results depend on."""
        return group[:1] if self.kind == "collective-broadcast" else group

    def zeros(self, operands: Operands) -> Operands:
        """Returns the results of a device with these operands that receives nothing."""
        return [np.zeros(shape.dims, a.dtype) for shape, a in zip(self.results, operands, strict=True)]

    def fail(self, message: str) -> None:
        """Reports an error at the instruction."""
        fail(f"{self.kind} {self.instruction.name}: {message}", self.instruction.location)


def _members(instruction: Instruction, kind: str, grid: ProcessGrid) -> tuple[Groups, Pairs]:
    try:
        return grid.members(instruction)
    except ValueError as error:
        fail(f"{kind} {instruction.name}: {error}", instruction.location, grid.help_for(instruction))


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


def check_complete(collective: GridCollective, group: Sequence[int], arrived: dict[int, Operands]) -> None:
    """Reports the devices of a group that do not take part."""
    missing = [device for device in group if device not in arrived]
    if missing:
        collective.fail(
            f"group {{{','.join(map(str, group))}}} is incomplete: {device_list(missing)} took another path "
            f"(a branch or the end of a loop) and would never join {device_list(sorted(set(group) & set(arrived)))}"
        )


def result_outside_groups(collective: GridCollective, device: int, operands: Operands) -> Operands:
    """Returns the results of a device in no group: zeros for a broadcast. Any other kind is an error."""
    if collective.kind != "collective-broadcast":
        collective.fail(f"device {device} is in no replica group")
    return collective.zeros(operands)


def device_list(devices: Sequence[int]) -> str:
    """Returns `device 3` or `devices 1, 2`."""
    return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"
