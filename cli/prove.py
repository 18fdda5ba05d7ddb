"""`hloom prove`: whether the partitioned program equals the original, over a finite field."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..ir.graph.module import clone_module
from ..ir.tools.spmd import is_per_device
from ..passes.pipelines import partition
from ..runtime.proof.prove import prove
from .common import EXIT_CHECK_FAILED, EXIT_OK, EXIT_UNPROVED, context_for, print_json, read_program, report
from .progress import working

_CODES = {"equal": EXIT_OK, "differs": EXIT_CHECK_FAILED, "unproved": EXIT_UNPROVED}


def prove_command(args: argparse.Namespace) -> int:
    """Partitions the program and proves the result. Raises CompileError for bad input."""
    program = read_program(args)
    if is_per_device(program):
        raise argparse.ArgumentTypeError("a program per device needs the one that it was made from: use hloom.prove")
    local = clone_module(program)
    context = context_for(args)
    with working("partitioning"):
        partition(local, context)
    report(args, context)
    with working(f"proving on {local.num_partitions} devices"):
        verdict = prove(program, local, args.trials, args.seed)
    if args.json:
        print_json({"program": program.name, "devices": local.num_partitions, **asdict(verdict)})
    else:
        print(verdict)
    return _CODES[verdict.outcome]
