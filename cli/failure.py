"""Turns the exception that ended a command into messages and an exit code. Internal errors leave a reproducer."""

from __future__ import annotations

import argparse
import sys

from ..ir.diagnostics import CompileError, InternalError
from ..ir.shown import for_terminal
from ..ir.user_python import origin_of, user_place
from ..report.reproducer import write_reproducer
from ..report.terminal import discard, show_diagnostics, tell
from ..runtime.ranks.failed import RankFailed
from ..runtime.ranks.library import MpiMissing
from .exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_MEMORY,
    EXIT_OUTPUT,
    EXIT_USAGE,
)


def failed(error: BaseException, args: argparse.Namespace, argv: list[str]) -> int:
    """Reports the error that ended a command, and returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, CompileError):
        show_diagnostics(error.diagnostics)
        return int(getattr(error, "exit_code", EXIT_BAD_INPUT))
    if isinstance(error, argparse.ArgumentTypeError):
        tell(f"hloom {args.command}: error: {error}")
        return EXIT_USAGE
    if isinstance(error, MpiMissing | RankFailed):
        if not getattr(error, "reported", False):  # by another rank
            tell(f"hloom: error: {error}")
        return error.exit_code
    if isinstance(error, OSError):
        return _output_failed(error)
    if isinstance(error, MemoryError):
        tell("hloom: error: out of memory")
        return EXIT_MEMORY
    return _internal(error, args, argv)


def _output_failed(error: OSError) -> int:
    """Returns the exit code after a failed write, and reports the failure unless the reader has just left."""
    discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    what = error.filename if error.filename is not None else "standard output"
    tell(f"hloom: error: {what} cannot be written: {error.strerror or error}")
    return EXIT_OUTPUT


def _internal(error: BaseException, args: argparse.Namespace, argv: list[str]) -> int:
    """Reports an unexpected exception and returns its exit code: an error of the user's own pass or custom-call, or a
    bug of Hloom.
    """
    origin = origin_of(error)
    place = user_place(origin, getattr(args, "imports", ()))
    if place is not None:
        tell(for_terminal(f"{place}: error: {_shown(origin)}"))
        return EXIT_BAD_INPUT
    path = write_reproducer(argv, error)
    tell(for_terminal(f"hloom: internal error: {error if isinstance(error, InternalError) else _shown(error)}"))
    tell(f"  help: please report this{f' with {path}' if path else ''}")
    return EXIT_INTERNAL


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
