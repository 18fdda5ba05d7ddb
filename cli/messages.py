"""Prints diagnostics on standard error, and the results of `--json` on standard output. Remarks on a program come after
its results: those that cost most, equal ones once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..ir.diagnostics import CompileError, Diagnostic, Severity
from ..report.remarks import costliest
from .exit_codes import EXIT_OK
from .streams import message_width, say, tell, wrapped

FEW, ALL, NONE = "few", "all", "none"
SHOWN = (FEW, ALL, NONE)
_MOST, _MOST_ON_SCREEN = 3, 1  # remarks: on a terminal the results stay on the screen


def chosen(found: Sequence[Diagnostic], shown: str, most: int = _MOST) -> tuple[list[Diagnostic], int]:
    """Returns the diagnostics to show, and how many remarks are left out."""
    if shown == ALL:
        return list(found), 0
    if shown == NONE:
        return [d for d in found if d.severity is not Severity.REMARK], 0
    return costliest(found, most)


_NOTED = "noted"  # the name of the findings in the arguments


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


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints diagnostics on standard error."""
    width = message_width()
    for diagnostic in diagnostics:
        text = diagnostic.render(width)
        tell(wrapped(text, width) if sys.stderr.isatty() else text)


def tell_noted(args: argparse.Namespace) -> None:
    """Prints the diagnostics that a command has noted, those that `--remarks` asks for."""
    most = _MOST_ON_SCREEN if sys.stderr.isatty() else _MOST
    shown, left_out = chosen(vars(args).pop(_NOTED, []), getattr(args, "remarks", ALL), most)
    show_diagnostics(shown)
    if left_out:
        tell(f"hloom: {left_out} more remark{'s' * (left_out > 1)}: --remarks all")


def tell_found(args: argparse.Namespace, found: Sequence[Diagnostic], quiet: bool) -> None:
    """Notes diagnostics, which `tell_noted` prints after the results, unless `quiet`. Raises CompileError with those
    that `--werror` turns into errors.
    """
    fatal = [d for d in found if d.category in getattr(args, "werror", ())]
    if not quiet:
        vars(args).setdefault(_NOTED, []).extend(d for d in found if d not in fatal)
    if fatal:
        raise CompileError([replace(d, severity=Severity.ERROR) for d in fatal])
