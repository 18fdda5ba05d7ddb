"""Runs the Python files of `--import`, and reads the arguments whose names they may register."""

from __future__ import annotations

import argparse
import runpy
import traceback
from collections.abc import Sequence

from ..ir.diagnostics import CATEGORIES, InternalError, fail


def run_imports(args: argparse.Namespace) -> None:
    """Runs the files of `--import`, which may register names that other arguments use, and then reads those arguments.

    Raises CompileError for errors in a file, argparse.ArgumentTypeError for unknown names.
    """
    for path in getattr(args, "imports", ()):
        _run_user_file(path)
    if hasattr(args, "werror"):
        args.werror = categories(args.werror)


def _run_user_file(path: str) -> None:
    """Runs a Python file of the user. Raises CompileError with the place of an error in it."""
    try:
        runpy.run_path(path)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}")
    except (Exception, SystemExit) as error:
        place = user_place(error, [path])
        fail(f"{place or path}: {type(error).__name__}: {error}", help="--import runs this file first")


def user_place(error: BaseException, paths: Sequence[str]) -> str | None:
    """Returns `file:line` of the last call in an error's traceback that is in one of these files; None if there is
    none.
    """
    if isinstance(error, SyntaxError) and error.filename in paths:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if f.filename in paths), None)


def origin_of(error: BaseException) -> BaseException:
    """Returns the exception that an InternalError reports: the first of its causes."""
    while isinstance(error, InternalError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def categories(names: frozenset[str]) -> frozenset[str]:
    """Returns the categories of diagnostics that `--werror` names, or all. Raises argparse.ArgumentTypeError."""
    if names == frozenset(("all",)):
        return frozenset(CATEGORIES)
    for name in sorted(names - set(CATEGORIES)):
        raise argparse.ArgumentTypeError(f"argument --werror: '{name}' is no category: {', '.join(CATEGORIES)}, or all")
    return names
