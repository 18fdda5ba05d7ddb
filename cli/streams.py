"""Prepares standard streams, which may be closed, on a full disk, or without a reader."""

from __future__ import annotations

import os
import sys

from ..report.terminal import tell


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
