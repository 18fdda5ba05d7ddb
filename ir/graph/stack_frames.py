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


class StackFrame(NamedTuple):
    """A place in a function that was being executed. `parent` is the number of the caller's frame, 0 without one."""

    function: str
    span: SourceSpan
    parent: int


def source_span(instruction: Instruction) -> SourceSpan | None:
    """Returns the place in the user's source; None if the program has none."""
    metadata = instruction.metadata
    if metadata is None:
        return None
    if metadata.source_file:
        return SourceSpan(metadata.source_file, metadata.source_line)
    frame = _frames_of(instruction).get(metadata.stack_frame_id)
    return frame.span if frame is not None else None


def call_chain(instruction: Instruction) -> tuple[StackFrame, ...]:
    """Returns the stack at which the frontend made an instruction, outermost first; empty if the program has none."""
    frames, chain = _frames_of(instruction), list[StackFrame]()
    number = instruction.metadata.stack_frame_id if instruction.metadata is not None else 0
    while number in frames and len(chain) <= len(frames):
        chain.append(frames[number])
        number = frames[number].parent
    return tuple(reversed(chain))


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


def _frames_of(instruction: Instruction) -> dict[int, StackFrame]:
    module = instruction.parent.parent if instruction.parent else None
    return _frames(module.stack_frames) if module is not None and module.stack_frames else {}


@lru_cache(maxsize=16)
def _frames(text: str) -> dict[int, StackFrame]:
    """Maps frame numbers to frames, using the four tables. In text a root's parent is 1, and the others count on."""
    tables: dict[str, dict[int, str]] = {}
    rows: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.strip().partition(" ")
        if number.isdigit():
            rows[int(number)] = rest
        elif number:
            rows = tables.setdefault(number, {})
    files, functions = (
        {number: name.strip('"') for number, name in tables.get(title, {}).items()}
        for title in ("FileNames", "FunctionNames")
    )
    places: dict[int, tuple[str, SourceSpan]] = {}
    for number, row in tables.get("FileLocations", {}).items():
        name, line = files.get(_field(row, "file_name_id"), ""), _field(row, "line")
        if name:
            end = _field(row, "end_column") if _field(row, "end_line") == line else 0
            function = functions.get(_field(row, "function_name_id"), "")
            places[number] = function, SourceSpan(name, line, _field(row, "column"), end)
    frames = ((number, row, _field(row, "file_location_id")) for number, row in tables.get("StackFrames", {}).items())
    return {n: StackFrame(*places[at], _field(row, "parent_frame_id") - 1) for n, row, at in frames if at in places}


def _field(row: str, name: str) -> int:
    match = re.search(rf"\b{name}=(\d+)", row)
    return int(match[1]) if match else 0
