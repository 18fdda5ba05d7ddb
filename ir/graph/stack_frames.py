"""Finds the line of the user's source from which an instruction originates.

Metadata names it directly (`source_file`, `source_line`), or by a number in the tables that newer XLA prints after the
header (FileNames, FunctionNames, FileLocations, StackFrames), where the innermost frame gives the line.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .instruction import Instruction


def source_line(instruction: Instruction) -> str:
    """Returns `model.py:33`, without folders; empty if the program has no source line."""
    metadata = instruction.metadata
    if metadata is None:
        return ""
    if metadata.source_file:
        return f"{_base(metadata.source_file)}:{metadata.source_line}"
    module = instruction.parent.parent if instruction.parent else None
    if module is None or not metadata.stack_frame_id:
        return ""
    return _frames(module.stack_frames).get(metadata.stack_frame_id, "")


def named_with_source(instruction: Instruction) -> str:
    """Returns `dot dot.3 (model.py:33)`: an instruction as messages name it."""
    line = source_line(instruction)
    return f"{instruction.opcode} {instruction.name}" + (f" ({line})" if line else "")


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


@lru_cache(maxsize=16)
def _frames(text: str) -> dict[int, str]:
    """Maps frame numbers to file and line, using the four tables."""
    tables: dict[str, dict[int, str]] = {}
    rows: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.strip().partition(" ")
        if number.isdigit():
            rows[int(number)] = rest
        elif number:
            rows = tables.setdefault(number, {})
    names = tables.get("FileNames", {})
    locations: dict[int, str] = {}
    for number, row in tables.get("FileLocations", {}).items():
        name = names.get(_field(row, "file_name_id"), "")
        locations[number] = f"{_base(name.strip(chr(34)))}:{_field(row, 'line')}" if name else ""
    frames = tables.get("StackFrames", {})
    return {number: locations.get(_field(row, "file_location_id"), "") for number, row in frames.items()}


def _field(row: str, name: str) -> int:
    match = re.search(rf"\b{name}=(\d+)", row)
    return int(match[1]) if match else 0
