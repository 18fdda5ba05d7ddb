"""Runs per-device programs on the ranks of an MPI job, once or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..ir.graph.module import Module
from ..ir.types.literal import Array
from ..runtime.mpi import MpiProgram
from ..runtime.plan.executable import Executable
from ..runtime.ranks.library import load_mpi
from ..runtime.ranks.watch import RankWatch
from ..runtime.trace import ProcessTrace, Trace
from .backend import BY_REFERENCE, Backend
from .devices import write_trace

T = TypeVar("T")


class Ranks:
    """Runs on the ranks of an MPI communicator, in a `with` statement; all of them must make the same calls.

    An error that leaves the statement ends it on all ranks. The lowest rank that has the error raises it, others
    RankFailed.
    """

    def __init__(
        self, comm: Any, timeout: float | None, backend: Backend = BY_REFERENCE, collectives: str | None = None
    ) -> None:
        self.comm = comm
        self.backend = backend
        self.timeout = timeout
        self.collectives = collectives
        self.watch = RankWatch(load_mpi(), comm, timeout)

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        with self.program(local) as program:
            return program.run_global(inputs, poison)

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        if trace is not None:
            outputs, seconds, found = self.traced(local, inputs, times)
            if found is not None:
                write_trace(trace, found, local, self.backend, seconds)
            return outputs, seconds
        with self.program(local) as program:
            return program.repeat_global(inputs, times)

    def traced(
        self, local: Module, inputs: Sequence[Array], times: int
    ) -> tuple[list[Array] | None, list[float], list[ProcessTrace] | None]:
        """As `repeat`, and returns the traces of all ranks in the last run, on rank 0."""
        trace = Trace()
        with self.program(local) as program:
            outputs, seconds = program.repeat_global(inputs, times, tracer=trace)
            return outputs, seconds, program.traces(trace)

    def program(self, local: Module, executable: Executable | None = None) -> MpiProgram:
        """Returns a program compiled for the ranks, to be used in a `with` statement. `executable` is that of the same
        program on other ranks.
        """
        if executable is not None:
            executable.spare.clear()  # the memory of devices that may now be on other ranks
            prepared, kernels = executable.module, executable.kernels
        else:
            prepared, kernels = self.backend.prepared(local), self.backend.kernels()
        return MpiProgram(prepared, self.comm, self.timeout, self.watch, kernels, self.collectives, executable)

    def share(self, value: T) -> T:
        self.watch.barrier("what rank 0 does with the results")
        return self.comm.bcast(value, root=0)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None:
            self.watch.barrier("the end of the run")
            self.watch.close()
            return
        self.watch.report(error)
        first = self.watch.same_error_of_lower_rank(error)
        self.watch.stop()
        if first is not None:
            raise first from error
