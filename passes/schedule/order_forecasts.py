"""Forecasts one program in several orders: what does not depend on the order is found once, and kept with the program.
"""

from __future__ import annotations

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import PeakMemory
from ...cost.seconds import Clock
from ...cost.simulation import Steps
from ...cost.timeline import timeline_seconds
from ...ir.analysis.liveness import Lives
from ...ir.graph.module import Module


class OrderForecasts:
    """The forecasts of a program in its present order, of which nothing else may change between two calls."""

    @staticmethod
    def of(module: Module, machine: Machine) -> OrderForecasts:
        """Returns the forecasts of a program, which it keeps until its instructions are others."""
        operands = {i: tuple(i.operands) for computation in module for i in computation}
        key = machine, module.input_output_alias, module.buffer_donor, operands
        return module.analyses.get(module, OrderForecasts, key, lambda: OrderForecasts(module, machine))

    def __init__(self, module: Module, machine: Machine) -> None:
        self.module, self.clock = module, Clock.of(module, machine)
        self.steps = Steps()
        self._kernels = OutsideOfAttention.on(machine)
        self._memory: PeakMemory | None = None

    def seconds(self) -> float:
        """Returns the seconds of the program."""
        return timeline_seconds(self.module, self.clock, self.steps)

    def peak(self) -> int:
        """Returns the bytes of the program's memory peak on a device."""
        return self._peaks.peak()

    def highest(self) -> tuple[int, list[tuple[Lives, int]]]:
        """Returns the peak, and the computations that run then with the places of their instructions that do."""
        return self._peaks.highest()

    @property
    def _peaks(self) -> PeakMemory:
        if self._memory is None:
            self._memory = PeakMemory(self.module, self._kernels)
        return self._memory
