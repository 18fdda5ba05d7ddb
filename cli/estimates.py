"""Estimates how long a part of the work will take: as long as it took last, by the sizes of the files of the command.

The cache keeps the last seconds of each part of each command, if they were worth a wait.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ..ir.disk_cache import folder, read_kept, write_kept

_SUFFIX = ".seconds"
_ALIKE = 4.0  # ratio of sizes, up to which times grow like them
_NAME = re.compile(r"\S*[\d./]\S*")  # of a file, or a number


def estimate(part: str, command: Sequence[str]) -> float | None:
    """Returns the seconds that a part of a command will take; None if it has not taken long for such a size."""
    place, size = folder(), _size(command)
    found = read_kept(_key(part, command), place, _SUFFIX) if place is not None else None
    try:
        seconds, before = map(float, found.split()) if found else (0.0, 0.0)
    except ValueError:
        return None
    ratio = size / before if size and before else 1.0
    return seconds * ratio or None if 1 / _ALIKE <= ratio <= _ALIKE else None


def keep(part: str, command: Sequence[str], seconds: float) -> None:
    """Keeps the seconds that a part of a command has taken."""
    place = folder()
    if place is not None:
        write_kept(_key(part, command), f"{seconds:.3f} {_size(command)}".encode(), place, _SUFFIX)


def _key(part: str, command: Sequence[str]) -> tuple[str, ...]:
    return "seconds", *command[:1], " ".join(_NAME.sub("", part).split())


def _size(command: Sequence[str]) -> int:
    """Returns the bytes of all files that a command line names."""
    return sum(os.path.getsize(argument) for argument in command if os.path.isfile(argument))
