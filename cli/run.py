"""Implements `hloom run`: partitions a program, runs it on simulated devices or MPI ranks, compares it with one device.

With `--ranks N` the command starts itself again on N ranks. Every rank reads and partitions the program (partitioning
is deterministic) and runs its block of devices; rank 0 reports. Under the user's own launcher it does the same.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..cost.collectives import collectives
from ..ir.diagnostics import fail
from ..ir.graph.module import Module, clone_module
from ..ir.tools.names import result_names
from ..ir.tools.placement import placements
from ..ir.tools.spmd import is_per_device
from ..ir.tools.unknown_values import require_values
from ..passes.pipelines import partition
from ..report.collectives import kinds_text
from ..runtime.evaluator import UnpartitionedProgram
from ..runtime.fabric.process_grid import ProcessGrid
from ..runtime.outputs import check_outputs, save_outputs
from ..runtime.plan.call_graph import live_in
from ..runtime.plan.executable import Executable
from ..runtime.ranks.failed import deadline, on_all_ranks
from ..runtime.ranks.launch import inside_launcher, launch, world
from ..runtime.simulator import SimulatedProgram
from .assumptions import remark_callbacks, remark_placements, unplaced
from .check import Devices, Ranks, Simulated, check, verdict_json, verify_options
from .comm import collectives_json
from .common import context_for, print_json, read_program, report
from .evaluate import inputs_for, outputs_json, print_outputs
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK
from .progress import working

Array = np.ndarray[Any, Any]


@dataclass
class Job:
    """A program before and after partitioning, and its inputs. Both are compiled once, on first use."""

    program: Module
    local: Module
    inputs: list[Array] = field(default_factory=list[Array])

    @cached_property
    def unpartitioned(self) -> UnpartitionedProgram:
        """The program on one device, compiled. Raises CompileError if it cannot be run."""
        return UnpartitionedProgram(self.program)

    @cached_property
    def simulated(self) -> SimulatedProgram:
        """The per-device program, compiled to run in this process. Raises CompileError if it cannot be run."""
        return SimulatedProgram(self.local)

    def refuse(self, ranks: int | None, check: bool) -> None:
        """Raises CompileError if the program cannot be run, before anything is printed or started."""
        if ranks is None:
            _ = self.simulated
        else:
            Executable(self.local, ProcessGrid.of(self.local))
        if check:
            _ = self.unpartitioned


def run(args: argparse.Namespace) -> int:
    """Runs `hloom run` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, RankFailed
    for failures of other ranks, and argparse.ArgumentTypeError for incompatible options.
    """
    verify_options(args)
    deadline(args.timeout)  # reports an error in the environment before starting ranks
    if args.ranks is not None and not inside_launcher():
        if args.file != "-":
            _prepare(args, args.ranks, quiet=True)  # reports bad input once, before starting ranks
        return launch(args.argv, args.ranks)
    if inside_launcher() and (args.ranks is not None or args.devices is None):
        return _run_rank(args)
    job = _prepare(args, None)
    _describe(args, job, f"{_devices(job.local)} simulated devices")
    return _report(args, job, Simulated(job.simulated))


def _run_rank(args: argparse.Namespace) -> int:
    comm = world(args.ranks)
    prepare = partial(_prepare, args, comm.size, quiet=comm.rank > 0)
    job = on_all_ranks(comm, prepare, "the partitioned program", args.timeout)
    with Ranks(comm, args.timeout) as ranks:
        if comm.rank == 0:
            _describe(args, job, f"{_devices(job.local)} devices on {comm.size} MPI ranks")
        return _report(args, job, ranks)


def _prepare(args: argparse.Namespace, ranks: int | None, quiet: bool = False) -> Job:
    program = read_program(args, quiet)
    require_values(live_in(program.entry), "to run the program")
    local = clone_module(program)
    context = context_for(args, default_devices=ranks)
    if not is_per_device(program):
        with working("partitioning"):
            partition(local, context)
    elif args.devices is not None and args.devices != _devices(local):
        fail(f"the program was partitioned for {_devices(local)} devices, {args.devices} are asked for")
    elif args.check:
        raise argparse.ArgumentTypeError("--check needs the unpartitioned program, this one is already partitioned")
    if ranks is not None and ranks > _devices(local):
        fail(f"the program runs on {_devices(local)} devices, too few for {ranks} ranks")
    job = Job(program, local)
    if not inside_launcher():
        job.refuse(ranks, args.check)
    remark_placements(local, context.diagnostics)
    remark_callbacks(local, context.diagnostics)
    report(args, context, quiet)
    if args.out is not None and not (inside_launcher() and quiet):  # the first rank writes
        check_outputs(Path(args.out))
    job.inputs = inputs_for(args, program, args.seed)
    return job


def _devices(module: Module) -> int:
    return module.num_partitions * module.replica_count


def _describe(args: argparse.Namespace, job: Job, where: str) -> None:
    if args.json:
        return
    found = collectives(job.local)
    sent = sum(c.wire_bytes * c.count for c in found)
    print(f"{job.program.name}: {where}; {kinds_text(found)}; {sent} bytes sent per device")


def _facts(job: Job) -> dict[str, object]:
    return collectives_json(job.local, collectives(job.local)) | {"program": job.program.name}


def _report(args: argparse.Namespace, job: Job, devices: Devices) -> int:
    """Runs the program and reports its results; returns the exit code on all processes."""
    with working(f"running on {_devices(job.local)} devices"):
        outputs = devices.run(job.local, job.inputs)
    if outputs is not None and args.out is not None:
        save_outputs(Path(args.out), outputs, result_names(job.program))
    if args.check:
        return _check(args, job, outputs, devices)
    if outputs is not None and args.json:
        print_json(_facts(job) | {"outputs": outputs_json(outputs, result_names(job.program))})
    elif outputs is not None:
        print_outputs(outputs, result_names(job.program), unplaced(placements(job.local)[1]))
    return devices.share(EXIT_OK)


def _check(args: argparse.Namespace, job: Job, outputs: list[Array] | None, devices: Devices) -> int:
    """Checks the run, and runs and checks further seeds."""
    passed, checks = True, list[dict[str, object]]()
    for seed in range(args.seed, args.seed + args.seeds):
        inputs = job.inputs
        if seed != args.seed:
            inputs = inputs_for(args, job.program, seed)
            outputs = devices.run(job.local, inputs)
        with working(f"checking seed {seed}"):
            unpartitioned = job.unpartitioned if outputs is not None else None
            verdict = check(args, unpartitioned, job.local, inputs, outputs, devices)
        if verdict is not None:
            passed &= verdict.passed
            checks.append({"seed": seed, **verdict_json(verdict)})
            if not args.json:
                print(f"seed {seed}: {verdict}" if args.seeds > 1 else verdict)
    passed = devices.share(passed)
    if outputs is not None and args.json:
        names = result_names(job.program)
        print_json(_facts(job) | {"outputs": outputs_json(outputs, names), "passed": passed, "checks": checks})
    elif outputs is not None:
        print("check passed" if passed else "check FAILED")
    return EXIT_OK if passed else EXIT_CHECK_FAILED
