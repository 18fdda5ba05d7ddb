"""Implements the commands on a part of a program, or on two programs: show, isolate, diff."""

from __future__ import annotations

import argparse
from itertools import groupby

from .. import frontends
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.tools.difference import ModuleDifference, differences
from ..ir.tools.extract import find_computation, find_instruction, isolate
from ..ir.tools.printer import computation_text, instruction_text
from .common import read_program
from .exit_codes import EXIT_CHECK_FAILED, EXIT_OK
from .messages import print_json, tell_found
from .streams import say, show_program

SHOWN = 5  # differences shown per computation
LONGEST = 160


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
        say(computation_text(find_computation(module, args.computation)))
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
    tell_found(args, right.warnings, quiet=False)
    found = differences(left, right)
    if args.json:
        records = [{"what": d.what, "computations": list(d.computations), "left": d.left and instruction_text(d.left),
                    "right": d.right and instruction_text(d.right)} for d in found]  # fmt: skip
        print_json({"equal": not found, "differences": records})
        return EXIT_CHECK_FAILED if found else EXIT_OK
    if not found:
        say(f"no differences: {left.name} and {right.name}, {sum(map(len, left))} instructions")
        return EXIT_OK
    for names, group in groupby(found, key=lambda d: d.computations):
        _print_group(names, list(group))
    say(f"{len(found)} difference{'s' * (len(found) > 1)}")
    return EXIT_CHECK_FAILED


def _print_group(names: tuple[str, str], found: list[ModuleDifference]) -> None:
    left, right = names
    title = f"computation {left}" if left == right else f"computations {left} and {right}"
    say(f"{title}:" if left else "modules:")
    for difference in found[:SHOWN]:
        say(f"  {difference.what}")
        for sign, instruction in (("-", difference.left), ("+", difference.right)):
            if instruction is not None:
                say(f"  {sign} {_line(instruction)}")
    if len(found) > SHOWN:
        say(f"  and {len(found) - SHOWN} more")


def _line(instruction: Instruction) -> str:
    text = instruction_text(instruction)
    short = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return f"{instruction.location}: {short}" if instruction.location else short
