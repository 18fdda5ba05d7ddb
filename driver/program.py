"""Holds a compiled program: the program of each device, the backend that computes it, and the ways to run it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..cost.machine import DEFAULT, Machine
from ..cost.memory import LiveMemory, live_memory
from ..cost.timeline import Timeline, timeline
from ..ir.brief import brief
from ..ir.checked_call import Duration, checked
from ..ir.diagnostics import CompileError, Diagnostic, Diagnostics
from ..ir.gc_pause import paused_collector
from ..ir.graph.module import Module
from ..ir.tools.process_grid import ProcessGrid
from ..ir.types.literal import Array
from ..runtime.evaluator import UnpartitionedProgram
from ..runtime.plan.executable import Executable
from ..runtime.ranks.failed import Communicator
from ..runtime.simulator import SimulatedProgram
from .backend import NATIVE, Backend, has_native_code
from .native_clock import native_clock

if TYPE_CHECKING:
    from ..runtime.mpi import MpiProgram
    from ..runtime.ranks.watch import RankWatch

_COMPILED = ("unpartitioned", "simulated")  # cached properties, which a copy compiles for itself


@dataclass(frozen=True, slots=True)
class NativeMemory:
    """The memory of a native run on a device, in bytes. `arena` holds all temporary values, and `bound` is the least
    that any layout of them needs. `run` adds parameters, constants, and the results outside of the arena.
    """

    arena: int
    bound: int
    run: int


@brief
@dataclass
class Program:
    """A program before partitioning (`module`) and after it (`local`), with the backend that computes it.

    Each form is compiled once, on first use. `machine` is the one that forecasts assume. `diagnostics` hold the remarks
    and warnings of compiling.
    """

    module: Module
    local: Module
    backend: Backend = field(default_factory=Backend)
    machine: Machine = DEFAULT
    diagnostics: tuple[Diagnostic, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _COMPILED}

    def packed(self) -> bytes:
        """Returns the program and its backend as bytes for another process; none if they cannot be pickled."""
        try:
            return pickle.dumps((self.module, self.local, self.backend.name, self.backend.known))
        except (pickle.PicklingError, AttributeError, TypeError):
            return b""

    @staticmethod
    def unpacked(data: bytes) -> Program:
        """Returns the program that `packed` gave to a process of the same job."""
        with paused_collector():
            return Program.of_parts(*pickle.loads(data))

    @staticmethod
    def of_parts(module: Module, local: Module, backend: str, known: tuple[Module, Module] | None) -> Program:
        """Returns the program of the values that `packed` pickles."""
        return Program(module, local, Backend(backend, known))

    @property
    def devices(self) -> int:
        """The number of devices that the program runs on."""
        return self.local.devices

    @cached_property
    def unpartitioned(self) -> UnpartitionedProgram:
        """The program on one device, which the reference computes. Raises CompileError if it cannot be run."""
        return UnpartitionedProgram(self.module)

    @cached_property
    def simulated(self) -> SimulatedProgram:
        """The per-device program, compiled to run in this process. Raises CompileError if it cannot be run."""
        return SimulatedProgram(self.backend.prepared(self.local), self.backend.kernels())

    def require_runnable(self, ranks: int | None = None) -> None:
        """Raises CompileError if the program cannot be run in this process, or on this many ranks."""
        if ranks is None:
            _ = self.simulated
        else:
            Executable(self.local, ProcessGrid.of(self.local))

    def simulate(self, inputs: Sequence[Array], poison: bool = False) -> list[Array]:
        """Runs all devices in this process, as `hloom.simulate`: takes and returns global arrays."""
        return self.simulated.simulate(inputs, poison).outputs

    def evaluate(self, inputs: Sequence[Array]) -> list[Array]:
        """Runs the unpartitioned program on one device, as `hloom.evaluate`."""
        return self.unpartitioned.run(inputs)

    def on_ranks(
        self, comm: Any, timeout: float | None = None, collectives: str | None = None, within: RankWatch | None = None
    ) -> MpiProgram:
        """Returns the program compiled for the ranks of a communicator, to be used in a `with` statement. All ranks
        must call it; `timeout` and `collectives` are those of `hloom.run`.

        Ranks without native code make all ranks compute by numpy: devices that hold the same tile must agree to the
        bit. Raises CompileError, RankFailed and MpiMissing as `hloom.run` does.
        """
        from ..runtime.mpi import MpiProgram

        backend = self.backend.common(comm, Diagnostics(), timeout)
        prepared = backend.prepared(self.local)
        return MpiProgram(prepared, comm, timeout, within, backend.kernels(), collectives)

    @checked
    def run(
        self, inputs: Sequence[Array], comm: Communicator, timeout: Duration | None = None,
        collectives: str | None = None,
    ) -> list[Array] | None:
        """Runs the program once on all ranks of `comm`. Takes global arrays on each of them, and returns global arrays
        on rank 0, None on the others. Raises the errors of `on_ranks`.
        """
        with self.on_ranks(comm, timeout, collectives) as program:
            return program.run_global(inputs)

    def memory(self) -> LiveMemory:
        """Returns the live memory of one device, in bytes, in the order of the program."""
        return live_memory(self.local)

    def native_memory(self) -> NativeMemory | None:
        """Returns the memory of a native run, in bytes; None without native code, or if the program cannot run here."""
        from ..runtime.native.table import arenas

        if not has_native_code():
            return None
        try:
            backend = self.backend if self.backend.name == NATIVE else Backend(NATIVE)
            found = arenas(backend.executable(self.local).arranged)
        except CompileError:
            return None  # values that are too large, or omitted from the text: memory is known all the same
        arena, live = sum(a.size for a in found), self.memory()
        run = live.parameters + live.constants + arena + live.results - live.aliased
        return NativeMemory(arena, sum(a.bound for a in found), run)

    def forecast(self) -> Timeline:
        """Returns the timeline of one execution on the machine, in seconds."""
        as_run = native_clock(self.local, self.machine) if self.backend.acting == NATIVE else None
        if as_run is None:
            return timeline(self.local, self.machine)
        return timeline(as_run[0], self.machine, as_run[1])
