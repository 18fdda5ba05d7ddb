"""Prints diagnostics on standard error, and the results of `--json` on standard output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ir.diagnostics import CompileError, Diagnostic, Severity
from .streams import message_width, tell


def print_json(value: object) -> None:
    """Prints the output of `--json`; docs/json.md describes its forms."""
    print(json.dumps(value, indent=1))


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints diagnostics on standard error."""
    for diagnostic in diagnostics:
        tell(diagnostic.render(message_width()))


def tell_found(args: argparse.Namespace, found: Sequence[Diagnostic], quiet: bool) -> None:
    """Prints diagnostics, unless `quiet`. Raises CompileError with those that `--werror` turns into errors."""
    fatal = [d for d in found if d.category in getattr(args, "werror", ())]
    if not quiet:
        show_diagnostics(d for d in found if d not in fatal)
    if fatal:
        raise CompileError([replace(d, severity=Severity.ERROR) for d in fatal])
