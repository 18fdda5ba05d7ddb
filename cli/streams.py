"""Prepares standard streams, which may be closed, on a full disk, or without a reader.

A stream that fails is no error of Hloom: it ends in one line and an exit code, also where Python notices only at its
end.
"""

from __future__ import annotations

import os
import sys

from ..report.terminal import discard, tell
from .exit_codes import EXIT_OUTPUT


def prepare_streams() -> bool:
    """Makes standard output UTF-8, like programs, and replaces other streams that are closed. Returns False if standard
    output is closed.
    """
    # A closed stream is None in Python, and print(file=None) would write to standard output.
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = open(os.devnull)  # noqa: SIM115 (a program read from it is empty)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        tell("hloom: error: standard output is closed")
        return False
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.encoding.lower() != "utf-8":
        reconfigure(encoding="utf-8")
    return True


def output_failed(error: OSError) -> int:
    """Returns the exit code after a failed write, and reports the failure unless the reader has just left."""
    discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    what = error.filename if error.filename is not None else "standard output"
    tell(f"hloom: error: {what} cannot be written: {error.strerror or error}")
    return EXIT_OUTPUT
