"""Runs Python files of users, and finds the lines of theirs that an error comes from."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Sequence
from typing import Any

from .diagnostics import InternalError, fail
from .user_files import cannot_read


def run_python(path: str, help: str | None = None) -> dict[str, Any]:
    """Runs a Python file, and returns its names. Raises CompileError with the place of an error in it."""
    try:
        return runpy.run_path(path)
    except OSError as error:
        cannot_read(path, error)
    except (Exception, SystemExit) as error:
        fail(f"{user_place(error, [path]) or path}: {type(error).__name__}: {error}", help=help)


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
