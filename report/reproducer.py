"""Writes a file with which others can see an internal error again: command, traceback and programs."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

_MOST = 100  # files in a folder
_PROGRAMS = (".hlo", ".txt")


def write_reproducer(command: Sequence[str], error: BaseException) -> Path | None:
    """Writes the arguments of a command, the traceback of the error that ended it, and the programs that the command
    names, to a new file in the current folder. Returns its path; None if it cannot be written.
    """
    lines = [f"// hloom {' '.join(command)}", "//"]
    lines += [f"// {line}" for line in "".join(traceback.format_exception(error)).splitlines()]
    for path in map(Path, command):
        if path.suffix in _PROGRAMS and path.is_file():
            lines += ["", path.read_text(errors="replace")]
    for number in range(_MOST):
        target = Path(f"hloom-reproducer-{number}.hlo")
        try:
            with target.open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write("\n".join(lines) + "\n")
        except FileExistsError:
            continue
        except OSError:
            return None
        return target
    return None
