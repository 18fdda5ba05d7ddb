"""Forecasts the time of a per-device program on a machine: that of its collectives, memory traffic and contractions.

Nothing overlaps, so that the parts add up, as they do where the partitioner decides (`cost.timeline` lets collectives
run while ops compute). The program may be Hloom's or one compiled and printed by XLA: fusions touch memory at their
ends only, trips of loops count, and of a conditional the slowest branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.graph.module import Module
from .layout import laid
from .machine import Machine
from .seconds import Clock


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds that one device spends: in collectives, reading and writing memory, computing contractions, and
    launching ops.
    """

    collectives: float = 0.0
    memory: float = 0.0
    work: float = 0.0
    launches: float = 0.0

    @property
    def seconds(self) -> float:
        return self.collectives + self.memory + self.work + self.launches


def forecast(
    module: Module, machine: Machine, sent: Mapping[str, int] | None = None, combined: bool = True
) -> Forecast:
    """Returns the forecast of one execution of a program. `sent` has other bytes of single collectives, by name.

    Unless `combined`, a collective of several arrays takes the time of one collective for each.
    """
    devices = module.devices
    found = Clock(laid(module, machine.of_devices(devices)), devices, sent, combined).serial(module.entry)
    return Forecast(found.collectives, found.memory, found.work, found.launches)
