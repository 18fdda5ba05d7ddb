"""Implements the commands that read a program and print one: verify, opt, partition."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from ..ir.deadlock.find import find_deadlocks
from ..ir.diagnostics import CompileError, Diagnostic, fail, without_errors
from ..ir.graph.module import Module, Stage
from ..passes.base import run_pipeline
from ..passes.pipelines import PASSES, parse_pipeline, partition, schedule
from .common import context_for, read_program, report, require_schedule
from .exit_codes import EXIT_BAD_INPUT, EXIT_OK
from .messages import print_json, tell_found
from .progress import working
from .streams import say, show_program, tell


def verify(args: argparse.Namespace) -> int:
    """Reads the program, which checks it, and looks for deadlocks if it is one per device."""
    try:
        module = read_program(args)
        found = without_errors(find_deadlocks(module))
        tell_found(args, found, quiet=args.json)
    except CompileError as error:
        if not args.json:
            raise
        print_json({"ok": False, "diagnostics": [_record(d) for d in error.diagnostics]})
        return EXIT_BAD_INPUT
    instructions = sum(len(c) for c in module)
    if args.json:
        print_json({"ok": True, "program": module.name, "stage": module.stage.value,
                    "diagnostics": [_record(d) for d in found],
                    "computations": len(module.computations), "instructions": instructions})
    else:
        say(f"{module.name}: ok, {len(module.computations)} computations, {instructions} instructions")
    return EXIT_OK


def _record(diagnostic: Diagnostic) -> dict[str, object]:
    return {
        "severity": diagnostic.severity.value, "file": diagnostic.location.source.name if diagnostic.location else None,
        "line": diagnostic.line, "column": diagnostic.column, "message": diagnostic.message, "help": diagnostic.help,
        "category": diagnostic.category, "notes": [_record(note) for note in diagnostic.notes],
    }  # fmt: skip


def opt(args: argparse.Namespace) -> int:
    """Runs the named passes and prints the result; `--dump-after` prints the program after single passes."""
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
    require_schedule(args)
    module = read_program(args)
    context = context_for(args)
    if module.stage not in (Stage.LOCAL, Stage.SCHEDULED):
        with working("partitioning"):
            partition(module, context)
    if args.schedule:
        with working("scheduling"):
            form = "variadic" if args.form == "local" else "xla"
            schedule(module, context, args.memory or 0, form, args.flat_parameters)
    report(args, context)
    if args.form != "local":
        from ..codegen import manual_module, replica_module

        module = (manual_module if args.form == "manual" else replica_module)(module)
    show_program(module.to_text())
    return EXIT_OK
