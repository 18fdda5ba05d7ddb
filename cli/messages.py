"""Prints diagnostics on standard error, and the results of `--json` on standard output. Remarks on a program come after
its results: those that cost most, equal ones once. `--werror` makes them errors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..ir.diagnostics import CATEGORIES, CompileError, Diagnostic, Severity
from ..report.remarks import ALL, chosen
from ..report.terminal import say, show_diagnostics, tell
from .exit_codes import EXIT_OK

_MOST, _MOST_ON_SCREEN = 3, 1  # remarks: on a terminal the results stay on the screen
_NOTED = "noted"  # the name of the findings in the arguments


def read_categories(args: argparse.Namespace) -> None:
    """Replaces the names of `--werror` by categories of diagnostics, if the command has it. Raises
    argparse.ArgumentTypeError for a name that is none, also of those that the files of `--import` have registered.
    """
    names = getattr(args, "werror", frozenset[str]())
    if names == frozenset(("all",)):
        args.werror = frozenset(CATEGORIES)
        return
    for name in sorted(names - set(CATEGORIES)):
        raise argparse.ArgumentTypeError(f"argument --werror: '{name}' is no category: {', '.join(CATEGORIES)}, or all")


def print_json(value: object) -> None:
    """Prints the output of `--json`; docs/json.md describes its forms."""
    print(json.dumps(value, indent=1))


def answer(args: argparse.Namespace, record: Callable[[], object], text: Callable[[], object]) -> int:
    """Prints a result, as JSON by `--json`, and returns the exit code of a command that has succeeded."""
    if args.json:
        print_json(record())
    else:
        say(text())
    return EXIT_OK


def tell_noted(args: argparse.Namespace) -> None:
    """Prints the diagnostics that a command has noted, those that `--remarks` asks for."""
    most = _MOST_ON_SCREEN if sys.stderr.isatty() else _MOST
    shown, left_out = chosen(vars(args).pop(_NOTED, []), getattr(args, "remarks", ALL), most)
    show_diagnostics(shown)
    if left_out:
        tell(f"hloom: {left_out} more remark{'s' * (left_out > 1)}: --remarks all")


def tell_found(args: argparse.Namespace, found: Sequence[Diagnostic], quiet: bool = False) -> None:
    """Notes diagnostics, which `tell_noted` prints after the results, unless `quiet`. Raises CompileError with those
    that `--werror` turns into errors.
    """
    fatal = [d for d in found if d.category in getattr(args, "werror", ())]
    if not quiet:
        vars(args).setdefault(_NOTED, []).extend(d for d in found if d not in fatal)
    if fatal:
        raise CompileError([replace(d, severity=Severity.ERROR) for d in fatal])
