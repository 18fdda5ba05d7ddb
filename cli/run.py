"""Implements `hloom run`: partitions a program, runs it on simulated devices or MPI ranks, compares it with one device.

With `--ranks N` the command prepares the run and starts itself again on N ranks. Every rank runs its block of devices;
rank 0 reports. Under the user's own launcher it does the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..driver.assumptions import unplaced
from ..driver.devices import Devices, Simulated
from ..driver.program import Program
from ..driver.running import RunReport, traffic_text
from ..ir.tools.placement import placements
from ..ir.types.element_type import ELEMENT_TYPES
from ..ir.types.literal import Array
from ..report.progress import working
from ..report.terminal import say
from ..runtime.allocator import keep_freed_memory
from ..runtime.inputs.inputs import KINDS, inputs_for_module
from ..runtime.outputs import outputs_text, save_outputs
from ..runtime.ranks.failed import deadline
from ..runtime.ranks.launch import launch, world
from ..runtime.ranks.mode import chosen_mode
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK
from .job import inputs_of, is_rank, prepare, prepare_on_ranks
from .messages import print_json


def run(args: argparse.Namespace) -> int:
    """Runs `hloom run` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, RankFailed
    for failures of other ranks, and argparse.ArgumentTypeError for incompatible options.
    """
    if args.seeds > 1 and args.inputs and (args.inputs in KINDS[1:] or Path(args.inputs).exists()):
        raise argparse.ArgumentTypeError(f"--seeds {args.seeds}: --inputs {args.inputs} are the same for each seed")
    keep_freed_memory()
    deadline(args.timeout)  # reports an error in the environment before starting ranks
    chosen_mode(args.collectives)
    if is_rank(args):
        return _run_rank(args)
    program = prepare(args, args.ranks)
    if args.ranks is not None:
        return launch(args.argv, args.ranks, left=program.packed())
    inputs = inputs_of(args, program)
    return _report(args, program, inputs, Simulated(program), f"{program.devices} simulated devices")


def _run_rank(args: argparse.Namespace) -> int:
    from ..driver.ranks import Ranks  # and the fabric of ranks, which a run in this process does without

    comm = world(args.ranks)
    program = prepare_on_ranks(args, None, comm)
    inputs = inputs_of(args, program, comm)
    where = f"{program.devices} devices on {comm.size} MPI ranks" if comm.rank == 0 else ""
    with Ranks(comm, args.timeout, program.backend, args.collectives) as ranks:
        return _report(args, program, inputs, ranks, where)


def _report(args: argparse.Namespace, program: Program, inputs: list[Array], devices: Devices, where: str) -> int:
    """Runs the program, and reports on the process that says `where`; returns the exit code on all processes."""
    if where and not args.json:
        say(traffic_text(program, where))
    with working(f"running on {program.devices} devices"):
        outputs, seconds = devices.repeat(program.local, inputs, args.repeat or 1, args.trace)
    found = RunReport(program, outputs, seconds if args.repeat else ())
    if outputs is not None and args.out is not None:
        save_outputs(Path(args.out), outputs, found.names)
    if outputs is not None and args.repeat and not args.json:
        say(found.times_text())
    if args.check:
        _check(args, found, inputs, devices)
    if found.outputs is not None and args.json:
        print_json(found.record())
    elif found.outputs is not None and args.check:
        say("check passed" if found.passed else "check FAILED")
    elif found.outputs is not None:
        per_device = unplaced(placements(program.local)[1])
        for line in outputs_text(found.outputs, found.names, per_device, short=sys.stdout.isatty()):
            say(line)
    return EXIT_OK if devices.share(found.passed) else EXIT_CHECK_FAILED


def _check(args: argparse.Namespace, found: RunReport, inputs: list[Array], devices: Devices) -> None:
    """Checks the run, and runs and checks further seeds."""
    exchanged = [ELEMENT_TYPES[name] for name in (args.reduce_in, args.gather_in) if name]
    for seed in range(args.seed, args.seed + args.seeds):
        if seed != args.seed:
            inputs = inputs_for_module(found.program.module, args.inputs, seed)
            found.outputs = devices.run(found.program.local, inputs)
        with working(f"checking seed {seed}"):
            verdict = found.check(devices, inputs, seed, exchanged, args.tolerance, args.allow_nan)
        if verdict is not None and not args.json:
            say(f"seed {seed}: {verdict}" if args.seeds > 1 else verdict)

