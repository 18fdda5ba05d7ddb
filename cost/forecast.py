"""Forecasts the time of a per-device program on a machine: that of its collectives, memory traffic and contractions.

Nothing overlaps, so that the parts add up, as they do where the partitioner decides. The program may be Hloom's or one
compiled and printed by XLA: fusions touch memory at their ends only, and trips of loops count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.ops.collective_groups import ALL, GroupAttributes
from ..ir.ops.collectives import CollectivePermuteAttributes
from ..ir.sharding.digit import Digit, Digits
from .collectives import Collective, collective_of
from .formulas import Kind
from .groups import group_digits, named_mesh
from .machine import SECOND, Machine
from .memory_traffic import touched
from .runs import runs
from .work import is_contraction, multiply_adds


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds that one device spends: in collectives, reading and writing memory, and computing contractions."""

    collectives: float = 0.0
    memory: float = 0.0
    work: float = 0.0

    @property
    def seconds(self) -> float:
        return self.collectives + self.memory + self.work


def forecast(
    module: Module, machine: Machine, sent: Mapping[str, int] | None = None, combined: bool = True
) -> Forecast:
    """Returns the forecast of one execution of a program. `sent` has other bytes of single collectives, by name.

    Unless `combined`, a collective of several arrays takes the time of one collective for each.
    """
    devices = module.num_partitions * module.replica_count
    mesh = named_mesh(module)
    communication = memory = work = 0.0
    for run in runs(module, fused=True):
        instruction = run.instruction
        if is_contraction(instruction):
            work += run.count * machine.work(multiply_adds(instruction), instruction.operands[0].shape.element)
        if instruction.op.is_collective:
            found = collective_of(run, devices, mesh)
            received = (sent or {}).get(found.name, found.wire_bytes)
            digits = _digits(instruction, devices, machine.levels)
            times = 1 if combined else found.arrays
            communication += run.count * times * machine.collective(_kind(found), digits).time(received / times)
        if not run.fused:
            memory += run.count * machine.memory(touched(instruction))
    return Forecast(communication / SECOND, memory / SECOND, work / SECOND)


def _kind(found: Collective) -> Kind:
    return cast(Kind, found.kind)


def _digits(instruction: Instruction, devices: int, levels: tuple[int, ...]) -> Digits | None:
    """Returns digits in which devices that exchange data differ; None if they are not known."""
    attributes = instruction.attributes
    if isinstance(attributes, CollectivePermuteAttributes):
        return _between(attributes.source_target_pairs, devices, levels)
    return group_digits(attributes.replica_groups if isinstance(attributes, GroupAttributes) else ALL, devices)


def _between(pairs: tuple[tuple[int, int], ...], devices: int, levels: tuple[int, ...]) -> Digits | None:
    """Returns the digits between levels of links in which the devices of a pair differ."""
    cuts = [1, *(level for level in levels if level < devices), devices]
    if any(high % low for low, high in pairwise(cuts)):
        return None
    found = [
        Digit(high // low, low)
        for low, high in pairwise(cuts)
        if any(a // low % (high // low) != b // low % (high // low) for a, b in pairs)
    ]
    return tuple(sorted(found, key=lambda d: -d.stride)) if math.prod(d.size for d in found) > 1 else ()
