"""Implements the commands that run passes and print the program: opt, partition."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..passes.base import run_pipeline
from ..passes.stages import divided_states, to_local, to_scheduled
from ..report.progress import working
from ..report.terminal import show_program, tell
from .common import context_for, report
from .exit_codes import EXIT_OK
from .reading import read_program


def opt(args: argparse.Namespace) -> int:
    """Runs the named passes and prints the result; `--dump-after` prints the program after single passes."""
    from ..passes.named import PASSES, parse_pipeline

    passes = parse_pipeline(args.passes)
    known = {*PASSES, "all"}
    wanted: set[str] = set(filter(None, (args.dump_after or "").split(",")))
    if wanted - known:
        fail(f"there is no pass '{min(wanted - known)}' to dump after", help="passes: " + ", ".join(sorted(known)))
    module = read_program(args)
    context = context_for(args)
    context.verify = "each"
    context.explain = args.explain

    def dump(name: str, after: Module) -> None:
        if name in wanted or "all" in wanted:
            show_program(f"// after {name}\n{after.to_text()}\n", sys.stderr)

    context.after = dump
    with nullcontext() if wanted else working("running passes"):
        run_pipeline(passes, module, context)
    if context.explain and not context.answers:
        fail(f"no pass explains a decision about '{context.explain}'", help="the pass fusion explains its own")
    report(args, context)
    for record in context.records if args.time else ():
        tell(f"{record.name}: {record.seconds * 1e3:.1f} ms")
    show_program(module.to_text())
    return EXIT_OK


def partition_command(args: argparse.Namespace) -> int:
    """Prints the program for one device, or a form of it that XLA compiles for all devices."""
    module = read_program(args)
    context = context_for(args)
    form, memory = "variadic" if args.form == "local" else "xla", args.memory or 0 if args.schedule else None
    divided = divided_states(module, context) if args.schedule else None
    to_local(module, context, working)
    to_scheduled(module, context, memory, form, args.flat_parameters, working, args.split_batch, divided)
    report(args, context)
    if args.form != "local":
        from ..codegen import manual_module, replica_module

        module = (manual_module if args.form == "manual" else replica_module)(module)
    show_program(module.to_text())
    return EXIT_OK
