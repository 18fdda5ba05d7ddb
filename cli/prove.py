"""`hloom prove`: whether a partitioned program equals the original, over a finite field."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .. import frontends
from ..ir.graph.module import Module, clone_module
from ..ir.tools.spmd import is_per_device
from ..passes.pipelines import partition
from ..runtime.proof.relations.located import prove
from .common import context_for, read_program, report
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK, EXIT_UNPROVED
from .messages import print_json
from .progress import working
from .streams import say

_CODES = {"equal": EXIT_OK, "differs": EXIT_CHECK_FAILED, "unproved": EXIT_UNPROVED}


def prove_command(args: argparse.Namespace) -> int:
    """Proves a partitioned program: the second file, or else what Hloom makes. Raises CompileError for bad input."""
    program = read_program(args)
    if is_per_device(program):
        raise argparse.ArgumentTypeError("a program per device comes second: hloom prove ORIGINAL LOCAL")
    if args.local is not None and args.devices is not None:
        raise argparse.ArgumentTypeError("--devices does not apply: LOCAL is partitioned already")
    local = _partitioned(args, program) if args.local is None else frontends.load(args.local)
    with working(f"proving on {local.num_partitions} devices"):
        verdict = prove(program, local, args.trials, args.seed, args.all_inputs)
    if args.json:
        print_json({"program": program.name, "devices": local.num_partitions, **asdict(verdict)})
    else:
        say(verdict)
    return _CODES[verdict.outcome]


def _partitioned(args: argparse.Namespace, program: Module) -> Module:
    local, context = clone_module(program), context_for(args)
    with working("partitioning"):
        partition(local, context)
    report(args, context)
    return local
