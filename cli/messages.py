"""Prints diagnostics on standard error, and the results of `--json` on standard output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ir.diagnostics import CompileError, Diagnostic, Severity
from .remarks import ALL, chosen
from .streams import message_width, tell

_NOTED = "noted"  # the name of the findings in the arguments


def print_json(value: object) -> None:
    """Prints the output of `--json`; docs/json.md describes its forms."""
    print(json.dumps(value, indent=1))


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints diagnostics on standard error."""
    for diagnostic in diagnostics:
        tell(diagnostic.render(message_width()))


def tell_noted(args: argparse.Namespace) -> None:
    """Prints the diagnostics that a command has noted, those that `--remarks` asks for."""
    shown, left_out = chosen(vars(args).pop(_NOTED, []), getattr(args, "remarks", ALL))
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
