"""Implements `hloom prove`: whether a partitioned program equals the original, over a finite field; and `hloom relate`:
which part of which value of the original each of its values is.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial

from .. import frontends
from ..driver.related import RelationsReport
from ..ir.graph.module import Module
from ..ir.time_limit import TimeLimit, time_limit
from ..ir.tools.spmd import is_per_device
from ..report.progress import working, working_on_parts
from ..runtime.proof.progress import Progress
from ..runtime.proof.relations.located import prove
from ..runtime.proof.relations.relate import relate
from ..runtime.proof.verdict import Verdict
from .common import partitioned
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK, EXIT_TESTED, EXIT_UNPROVED
from .messages import answer
from .reading import read_program

_CODES = {
    "equal": EXIT_OK, "differs": EXIT_CHECK_FAILED, "unproved": EXIT_UNPROVED, "undecided": EXIT_UNPROVED,
    "agrees": EXIT_TESTED,
}  # fmt: skip


def prove_command(args: argparse.Namespace) -> int:
    """Proves a partitioned program: the second file, or else Hloom's own. Raises CompileError for bad input."""
    program = read_program(args)
    if is_per_device(program):
        raise argparse.ArgumentTypeError("a program per device comes second: hloom prove ORIGINAL LOCAL")
    if args.local is not None and args.devices is not None:
        raise argparse.ArgumentTypeError("--devices does not apply: LOCAL is partitioned already")
    with time_limit(args.timeout):
        devices, verdict = _proved(args, program)
    answer(args, lambda: {"program": program.name, "devices": devices, **asdict(verdict)}, lambda: verdict)
    return _CODES[verdict.outcome]


def _proved(args: argparse.Namespace, program: Module) -> tuple[int | None, Verdict]:
    """Returns the number of devices, None if partitioning did not come to its end, and the verdict."""
    progress = Progress(program, args.timeout)
    progress.begin("partitioning")
    try:
        local = partitioned(args, program)[0] if args.local is None else frontends.load(args.local)
    except TimeLimit as limit:
        return None, progress.undecided(limit)
    with working_on_parts(f"proving on {local.num_partitions} devices", "making ready") as tell:
        return local.num_partitions, prove(
            program, local, args.trials, args.seed, args.all_inputs, args.timeout, tell
        )


def relate_command(args: argparse.Namespace) -> int:
    """Partitions the program and prints one line per value of the result. Raises CompileError for bad input."""
    program = read_program(args)
    if is_per_device(program):
        raise argparse.ArgumentTypeError("a program per device needs the one that it was made from: use hloom.relate")
    local, _ = partitioned(args, program)
    with working(f"relating on {local.num_partitions} devices"):
        found = relate(program, local, args.seed)
    shown = RelationsReport(program.name, local.num_partitions, found)
    return answer(args, partial(shown.record, args.only), partial(shown.text, args.only))
