"""`hloom prove`: whether a partitioned program equals the original, over a finite field."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .. import frontends
from ..ir.graph.module import Module
from ..ir.time_limit import TimeLimit, time_limit
from ..ir.tools.spmd import is_per_device
from ..runtime.proof.progress import Progress
from ..runtime.proof.relations.located import prove
from ..runtime.proof.verdict import Verdict
from .common import partitioned, read_program
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK, EXIT_TESTED, EXIT_UNPROVED
from .messages import print_json
from .progress import working
from .streams import say

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
    if args.json:
        print_json({"program": program.name, "devices": devices, **asdict(verdict)})
    else:
        say(verdict)
    return _CODES[verdict.outcome]


def _proved(args: argparse.Namespace, program: Module) -> tuple[int | None, Verdict]:
    """Returns the number of devices, None if partitioning did not come to its end, and the verdict."""
    progress = Progress(program, args.timeout)
    progress.begin("partitioning")
    try:
        local = partitioned(args, program) if args.local is None else frontends.load(args.local)
    except TimeLimit as limit:
        return None, progress.undecided(limit)
    part = "making ready"

    def tell(now: str) -> None:
        nonlocal part
        part = now

    with working(lambda: f"proving on {local.num_partitions} devices, {part}"):
        return local.num_partitions, prove(
            program, local, args.trials, args.seed, args.all_inputs, args.timeout, tell
        )
