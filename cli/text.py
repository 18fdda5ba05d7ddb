"""Implements the commands that read programs and print one, or compare them: verify, show, isolate, diff."""

from __future__ import annotations

import argparse

from .. import frontends
from ..ir.deadlock.find import find_deadlocks
from ..ir.diagnostics import CompileError, fail, without_errors
from ..ir.tools.difference import differences
from ..ir.tools.extract import find_computation, find_instruction, isolate
from ..ir.tools.printer import computation_text
from ..report.differences import differences_record, differences_text
from ..report.remarks import diagnostic_record
from ..report.terminal import say, show_program
from .exit_codes import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_OK
from .messages import print_json, tell_found
from .reading import read_program


def verify(args: argparse.Namespace) -> int:
    """Reads the program, which checks it, and looks for deadlocks if it is one per device."""
    try:
        module = read_program(args)
        found = without_errors(find_deadlocks(module))
        tell_found(args, found, quiet=args.json)
    except CompileError as error:
        if not args.json:
            raise
        print_json({"ok": False, "diagnostics": [diagnostic_record(d) for d in error.diagnostics]})
        return EXIT_BAD_INPUT
    instructions = sum(len(c) for c in module)
    if args.json:
        print_json({"ok": True, "program": module.name, "stage": module.stage.value,
                    "diagnostics": [diagnostic_record(d) for d in found],
                    "computations": len(module.computations), "instructions": instructions})
    else:
        say(f"{module.name}: ok, {len(module.computations)} computations, {instructions} instructions")
    return EXIT_OK


def show(args: argparse.Namespace) -> int:
    """Prints the program, or one computation of it, as Hloom reads it, in HLO or in StableHLO."""
    module = read_program(args)
    if args.form == "stablehlo":
        if args.computation is not None:
            fail("StableHLO is printed of the whole program", help="leave --computation or --as out")
        show_program(module.to_stablehlo())
    elif args.computation is None:
        show_program(module.to_text())
    else:
        show_program(f"{computation_text(find_computation(module, args.computation))}\n")
    return EXIT_OK


def isolate_command(args: argparse.Namespace) -> int:
    """Prints a program of one instruction, and of `--depth` levels of its operands."""
    module = read_program(args)
    instruction = find_instruction(module, args.inst, args.computation)
    show_program(isolate(module, instruction, args.depth).to_text())
    return EXIT_OK


def diff(args: argparse.Namespace) -> int:
    """Prints how two programs differ."""
    if args.file == args.other == "-":
        fail("standard input can be one of the programs only")
    left, right = read_program(args), frontends.load(args.other)
    tell_found(args, right.warnings)
    found = differences(left, right)
    if args.json:
        print_json(differences_record(found))
    elif found:
        say(differences_text(found))
    else:
        say(f"no differences: {left.name} and {right.name}, {sum(map(len, left))} instructions")
    return EXIT_CHECK_FAILED if found else EXIT_OK
