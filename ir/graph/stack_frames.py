"""Finds the line of the user's source from which an instruction originates.

Metadata names it directly (`source_file`, `source_line`), or by a number in the tables that newer XLA prints after the
header (FileNames, FunctionNames, FileLocations, StackFrames), where the innermost frame gives the line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .instruction import Instruction


class SourceSpan(NamedTuple):
    """The characters of a source file that made an instruction.

    `line` counts from 1. `column` and `end_column` are offsets in bytes of UTF-8 in that line, from 0; an `end_column`
    of 0 is the end of the line.
    """

    path: str
    line: int
    column: int = 0
    end_column: int = 0


def source_span(instruction: Instruction) -> SourceSpan | None:
    """Returns the place in the user's source; None if the program has none."""
    metadata = instruction.metadata
    if metadata is None:
        return None
    if metadata.source_file:
        return SourceSpan(metadata.source_file, metadata.source_line)
    module = instruction.parent.parent if instruction.parent else None
    if module is None or not metadata.stack_frame_id:
        return None
    return _frames(module.stack_frames).get(metadata.stack_frame_id)


def source_line(instruction: Instruction) -> str:
    """Returns `model.py:33`, without folders; empty if the program has no source line."""
    span = source_span(instruction)
    return f"{_base(span.path)}:{span.line}" if span is not None else ""


def named_with_source(instruction: Instruction) -> str:
    """Returns `dot dot.3 (model.py:33)`: an instruction as messages name it."""
    line = source_line(instruction)
    return f"{instruction.opcode} {instruction.name}" + (f" ({line})" if line else "")


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


@lru_cache(maxsize=16)
def _frames(text: str) -> dict[int, SourceSpan]:
    """Maps frame numbers to places, using the four tables."""
    tables: dict[str, dict[int, str]] = {}
    rows: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.strip().partition(" ")
        if number.isdigit():
            rows[int(number)] = rest
        elif number:
            rows = tables.setdefault(number, {})
    names = {number: name.strip('"') for number, name in tables.get("FileNames", {}).items()}
    spans: dict[int, SourceSpan] = {}
    for number, row in tables.get("FileLocations", {}).items():
        name, line = names.get(_field(row, "file_name_id"), ""), _field(row, "line")
        if name:
            end = _field(row, "end_column") if _field(row, "end_line") == line else 0
            spans[number] = SourceSpan(name, line, _field(row, "column"), end)
    frames = {number: _field(row, "file_location_id") for number, row in tables.get("StackFrames", {}).items()}
    return {number: spans[place] for number, place in frames.items() if place in spans}


def _field(row: str, name: str) -> int:
    match = re.search(rf"\b{name}=(\d+)", row)
    return int(match[1]) if match else 0
