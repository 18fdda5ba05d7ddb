"""Implements `hloom run --check`: compares the partitioned run with the unpartitioned program, for one or several
seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ..driver.backend import BY_REFERENCE, Backend
from ..ir.diagnostics import CompileError
from ..ir.graph.module import Module
from ..runtime.check.check import Verdict, WideRun, judge, wide_program
from ..runtime.check.errors import LargestError
from ..runtime.check.reference import Reference
from ..runtime.evaluator import UnpartitionedProgram
from ..runtime.inputs.inputs import KINDS
from ..runtime.mpi import MpiProgram
from ..runtime.ranks.failed import RankFailed
from ..runtime.ranks.library import load_mpi
from ..runtime.ranks.watch import RankWatch
from ..runtime.simulator import SimulatedProgram
from ..runtime.trace import ProcessTrace, Trace, save_trace

Array = np.ndarray[Any, Any]
T = TypeVar("T")


class Devices(Protocol):
    """Runs partitioned programs somewhere."""

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        """Takes global arrays and returns global results; None on all processes but the first."""
        ...

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        """Runs the program several times on the same inputs; also returns the seconds of each run. Writes what the last
        run did to a file, if one is given.
        """
        ...

    def share(self, value: T) -> T:
        """Returns the value of the first process on all processes."""
        ...


class Simulated:
    """Runs all devices in this process. One program is compiled beforehand: `ready` is that of `local`."""

    def __init__(self, local: Module, ready: SimulatedProgram, backend: Backend) -> None:
        self.local = local
        self.ready = ready
        self.backend = backend

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        return self._program(local).simulate(inputs, poison).outputs

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        tracer = Trace() if trace is not None else None
        found, seconds = self._program(local).repeat(inputs, times, tracer)
        if trace is not None and tracer is not None:
            name = f"{local.num_partitions * local.replica_count} simulated devices"
            save_trace(trace, [ProcessTrace(0, name, tracer)], trace_facts(local, self.backend, seconds))
        return found.outputs, seconds

    def _program(self, local: Module) -> SimulatedProgram:
        if local is self.local:
            return self.ready
        return SimulatedProgram(self.backend.prepared(local), self.backend.kernels())

    def share(self, value: T) -> T:
        return value


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
        with self._program(local) as program:
            return program.run_global(inputs, poison)

    def repeat(
        self, local: Module, inputs: Sequence[Array], times: int, trace: Path | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        if trace is not None:
            outputs, seconds, found = self.traced(local, inputs, times)
            if found is not None:
                save_trace(trace, found, trace_facts(local, self.backend, seconds))
            return outputs, seconds
        with self._program(local) as program:
            return program.repeat_global(inputs, times)

    def traced(
        self, local: Module, inputs: Sequence[Array], times: int
    ) -> tuple[list[Array] | None, list[float], list[ProcessTrace] | None]:
        """As `repeat`, and returns the traces of all ranks in the last run, on rank 0."""
        trace = Trace()
        with self._program(local) as program:
            outputs, seconds = program.repeat_global(inputs, times, tracer=trace)
            return outputs, seconds, program.traces(trace)

    def _program(self, local: Module) -> MpiProgram:
        prepared, kernels = self.backend.prepared(local), self.backend.kernels()
        return MpiProgram(prepared, self.comm, self.timeout, self.watch, kernels, self.collectives)

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


def trace_facts(local: Module, backend: Backend, seconds: Sequence[float]) -> dict[str, Any]:
    """Returns what a trace says beside its events: the traced run is the last one."""
    return {"program": local.name, "backend": backend.name, "runs": len(seconds), "seconds": seconds[-1]}


def verify_options(args: argparse.Namespace) -> None:
    """Raises argparse.ArgumentTypeError for options of a check that have no effect."""
    if not args.check:
        given = {"--tolerance": args.tolerance is not None, "--allow-nan": args.allow_nan, "--seeds": args.seeds > 1}
        for option in (option for option, is_given in given.items() if is_given):
            raise argparse.ArgumentTypeError(f"{option} needs --check")
    if args.seeds > 1 and (args.inputs in KINDS[1:] or Path(args.inputs).exists()):
        raise argparse.ArgumentTypeError(f"--seeds {args.seeds}: --inputs {args.inputs} are the same for each seed")


def check(
    args: argparse.Namespace, program: UnpartitionedProgram | None, local: Module, inputs: list[Array],
    outputs: list[Array] | None, devices: Devices,
) -> Verdict | None:  # fmt: skip
    """Judges the results of a partitioned run. Returns None on all processes but the first, which has the unpartitioned
    program.
    """
    reference = Reference(program, inputs) if program is not None else None
    wide = wide_program(reference, local) if reference is not None else None
    if devices.share(wide is not None):
        wide = wide or WideRun.of(local, inputs)
    in_f64, problem = _run_wide(wide, devices)
    if reference is None or outputs is None:
        return None
    if problem:
        reference.give_up(problem)
    count = local.num_partitions * local.replica_count
    return judge(reference, outputs, in_f64, count, args.tolerance, args.allow_nan)


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict as a record. Infinite errors, which JSON cannot represent, are null."""

    def worst(found: LargestError | None) -> dict[str, Any] | None:
        return found and {**asdict(found), "error": found.error if math.isfinite(found.error) else None}

    errors = {name: worst(getattr(verdict, name)) for name in ("in_f64", "own", "one_device")}
    return {"passed": verdict.passed, **asdict(verdict), **errors}


def _run_wide(wide: WideRun | None, devices: Devices) -> tuple[list[Array] | None, str]:
    if wide is None:
        return None, ""
    try:
        return devices.run(wide.program, wide.inputs, poison=True), ""
    except CompileError as error:
        return None, error.diagnostics[0].message
    except RankFailed as error:
        if not error.reported:
            raise
        return None, error.message  # that rank continues as this one does
