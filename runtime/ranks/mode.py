"""Names the ways in which ranks of one node communicate."""

from __future__ import annotations

import os

from ...ir.diagnostics import fail

COLLECTIVES = "HLOOM_COLLECTIVES"
AUTO, SHARED, MPI = MODES = ("auto", "shared", "mpi")


def chosen_mode(mode: str | None) -> str:
    """Returns how ranks of a node communicate: `mode`, or else HLOOM_COLLECTIVES, or else `auto`.

    Raises CompileError for anything but a mode.
    """
    found = mode or os.environ.get(COLLECTIVES) or AUTO
    if found not in MODES:
        what = f"collectives={mode!r}" if mode else f"{COLLECTIVES}={found}"
        fail(f"{what} is none of {', '.join(MODES)}")
    return found
