"""Runs per-device programs somewhere, once or repeatedly: in this process, or on MPI ranks (`ranks`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ..cost.memory import live_memory
from ..ir.graph.module import Module
from ..ir.types.literal import Array
from ..runtime.ranks.cores import seconds_on_cores
from ..runtime.simulator import SimulatedProgram
from ..runtime.trace import ProcessTrace, Trace, save_trace
from .backend import Backend
from .program import Program

T = TypeVar("T")


class Devices(Protocol):
    """Runs partitioned programs somewhere."""

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        """Takes global arrays and returns global results; None on all processes but the first."""
        ...

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        """Runs the program several times on the same inputs; also returns the seconds of each run. Writes the trace of
        the last run to a file, if one is given.
        """
        ...

    def share(self, value: T) -> T:
        """Returns the value of the first process on all processes."""
        ...


class Simulated:
    """Runs all devices in this process, of a program and of others by its backend."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        return self._program(local).simulate(inputs, poison).outputs

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        tracer = Trace() if trace is not None else None
        found, seconds = self._program(local).repeat(inputs, times, tracer)
        if trace is not None and tracer is not None:
            name = f"{local.devices} simulated devices"
            write_trace(trace, [ProcessTrace(0, name, tracer)], local, self.program.backend, seconds)
        return found.outputs, seconds

    def _program(self, local: Module) -> SimulatedProgram:
        program = self.program if local is self.program.local else Program(local, local, self.program.backend)
        return program.simulated

    def share(self, value: T) -> T:
        return value


def write_trace(
    path: Path, found: Sequence[ProcessTrace], local: Module, backend: Backend, seconds: Sequence[float]
) -> None:
    """Writes the traces of the last of several runs to a file, with the bytes that live on a device at each op, and the
    seconds that ranks of this host need on its cores. Raises OutputError.
    """
    facts = {"program": local.name, "backend": backend.acting, "runs": len(seconds), "seconds": seconds[-1]}
    busy = [one.busy for one in found if one.busy is not None]
    if len(busy) == len(found):
        facts["busy"] = seconds_on_cores(busy)
    live = {moment.name: moment.bytes for moment in live_memory(backend.prepared(local)).curve}
    save_trace(path, found, facts, live)
