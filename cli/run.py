"""Implements `hloom run`: partitions a program, runs it on simulated devices or MPI ranks, compares it with one device.

With `--ranks N` the command prepares the run and starts itself again on N ranks. Every rank runs its block of devices;
rank 0 reports. Under the user's own launcher it does the same.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from ..cost.collectives import collectives
from ..driver.assumptions import unplaced
from ..driver.devices import Devices, Simulated
from ..ir.tools.names import result_names
from ..ir.tools.placement import placements
from ..ir.types.element_type import ELEMENT_TYPES
from ..ir.types.literal import Array
from ..report.collectives import collectives_record, kinds_text
from ..report.progress import working
from ..report.terminal import say
from ..runtime.allocator import keep_freed_memory
from ..runtime.check.on_devices import check_on
from ..runtime.inputs.inputs import KINDS, inputs_for_module
from ..runtime.outputs import outputs_record, save_outputs
from ..runtime.ranks.failed import deadline
from ..runtime.ranks.launch import launch, world
from ..runtime.ranks.mode import chosen_mode
from .evaluate import print_outputs
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK
from .job import Job, is_rank, job_on_ranks, prepare
from .messages import print_json


def run(args: argparse.Namespace) -> int:
    """Runs `hloom run` and returns its exit code. Raises CompileError for bad input, MpiMissing without MPI, RankFailed
    for failures of other ranks, and argparse.ArgumentTypeError for incompatible options.
    """
    verify_options(args)
    keep_freed_memory()
    deadline(args.timeout)  # reports an error in the environment before starting ranks
    chosen_mode(args.collectives)
    if is_rank(args):
        return _run_rank(args)
    job = prepare(args, args.ranks)
    if args.ranks is not None:
        return launch(args.argv, args.ranks, left=job.program.packed())
    job.inputs = inputs_for_module(job.program.module, args.inputs, args.seed)
    _describe(args, job, f"{job.program.devices} simulated devices")
    return _report(args, job, Simulated(job.program))


def _run_rank(args: argparse.Namespace) -> int:
    from ..driver.ranks import Ranks  # and the fabric of ranks, which a run in this process does without

    comm = world(args.ranks)
    job = job_on_ranks(args, comm)
    with Ranks(comm, args.timeout, job.program.backend, args.collectives) as ranks:
        if comm.rank == 0:
            _describe(args, job, f"{job.program.devices} devices on {comm.size} MPI ranks")
        return _report(args, job, ranks)


def _describe(args: argparse.Namespace, job: Job, where: str) -> None:
    if args.json:
        return
    found = collectives(job.program.local)
    sent = sum(c.wire_bytes * c.count for c in found)
    say(f"{job.program.module.name}: {where}; {kinds_text(found)}; {sent} bytes sent per device")


def _report(args: argparse.Namespace, job: Job, devices: Devices) -> int:
    """Runs the program and reports its results; returns the exit code on all processes."""
    program, names = job.program, result_names(job.program.module)
    with working(f"running on {program.devices} devices"):
        outputs, seconds = devices.repeat(program.local, job.inputs, args.repeat or 1, args.trace)
    if outputs is not None and args.out is not None:
        save_outputs(Path(args.out), outputs, names)
    facts: dict[str, object] = {"program": program.module.name, "backend": program.backend.name}
    if args.repeat:
        first, median = seconds[0], statistics.median(seconds)
        facts["seconds"] = {"first": first, "median": median, "runs": len(seconds)}
        if outputs is not None and not args.json:
            say(f"first run {_time(first)}, median of {len(seconds)} {_time(median)}")
    checked: dict[str, object] = {}
    if args.check:
        outputs, checks = _check(args, job, outputs, devices)
        checked = {"passed": all(check["passed"] for check in checks), "checks": checks}
    passed = bool(checked.get("passed", True))
    if outputs is not None and args.json:
        made = collectives_record(program.local, collectives(program.local))
        print_json({**made, **facts, "outputs": outputs_record(outputs, names), **checked})
    elif outputs is not None and args.check:
        say("check passed" if passed else "check FAILED")
    elif outputs is not None:
        print_outputs(outputs, names, unplaced(placements(program.local)[1]))
    return EXIT_OK if devices.share(passed) else EXIT_CHECK_FAILED


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _check(
    args: argparse.Namespace, job: Job, outputs: list[Array] | None, devices: Devices
) -> tuple[list[Array] | None, list[dict[str, object]]]:
    """Checks the run, and runs and checks further seeds. Returns the last outputs and the verdicts."""
    program, checks = job.program, list[dict[str, object]]()
    exchanged = [ELEMENT_TYPES[name] for name in (args.reduce_in, args.gather_in) if name]
    for seed in range(args.seed, args.seed + args.seeds):
        inputs = job.inputs
        if seed != args.seed:
            inputs = inputs_for_module(program.module, args.inputs, seed)
            outputs = devices.run(program.local, inputs)
        with working(f"checking seed {seed}"):
            unpartitioned = program.unpartitioned if outputs is not None else None
            verdict = check_on(devices, unpartitioned, program.local, inputs, outputs, exchanged, args.tolerance,
                               args.allow_nan)
        if verdict is not None:
            checks.append({"seed": seed, **verdict.record()})
            if not args.json:
                say(f"seed {seed}: {verdict}" if args.seeds > 1 else verdict)
    return outputs, checks


def verify_options(args: argparse.Namespace) -> None:
    """Raises argparse.ArgumentTypeError for options of a check that have no effect."""
    if not args.check:
        given = {"--tolerance": args.tolerance is not None, "--allow-nan": args.allow_nan, "--seeds": args.seeds > 1}
        for option in (option for option, is_given in given.items() if is_given):
            raise argparse.ArgumentTypeError(f"{option} needs --check")
    if args.seeds > 1 and (args.inputs in KINDS[1:] or Path(args.inputs).exists()):
        raise argparse.ArgumentTypeError(f"--seeds {args.seeds}: --inputs {args.inputs} are the same for each seed")
