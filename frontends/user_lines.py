"""Replaces places in generated HLO text by the lines of the user's source that made them.

Nobody has seen the HLO text of a program that comes from JAX, so diagnostics should show the user's file instead.
"""

from __future__ import annotations

import inspect
import linecache
from types import CodeType

from ..ir.diagnostics import Location, SourceFile
from ..ir.graph.module import Module
from ..ir.graph.stack_frames import SourceSpan, source_span


def locate_in_source(module: Module) -> None:
    """Sets the location of every instruction whose source file can be read; the others keep their place in HLO text."""
    lines = UserLines()
    for computation in module:
        for instruction in computation:
            span = source_span(instruction)
            found = lines.location(span) if span is not None else None
            if found is not None:
                instruction.location = found


def locate_parameters(module: Module, function: object) -> None:
    """Sets the location of the entry's parameters to the first line of the user's function, if it can be found."""
    found = place_of(function)
    for parameter in module.entry.parameters if found is not None else ():
        parameter.location = found


def place_of(function: object) -> Location | None:
    """Returns the first line of a Python function, if its source can be found."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    return UserLines().location(SourceSpan(code.co_filename, code.co_firstlineno))


class UserLines:
    """Finds locations in the user's source files, each of which is read once."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[SourceFile, list[int]] | None] = {}
        self._known: dict[SourceSpan, Location | None] = {}

    def location(self, span: SourceSpan) -> Location | None:
        """Returns the location of a span; None if the file or the line is not there."""
        if span not in self._known:
            self._known[span] = self._find(span)
        return self._known[span]

    def _find(self, span: SourceSpan) -> Location | None:
        file = self._file(span.path)
        if file is None or not 1 <= span.line < len(file[1]):
            return None
        source, starts = file
        start, end = starts[span.line - 1], starts[span.line]
        line = source.text[start:end].rstrip("\r\n").encode()
        if span.end_column > span.column:
            chosen = line[: span.end_column]
        else:  # without columns or over several lines: to the end of the line
            chosen = line
        before = line[: span.column] if span.column else line[: len(line) - len(line.lstrip())]
        begin = len(before.decode(errors="ignore"))
        return Location(source, start + begin, start + max(len(chosen.decode(errors="ignore")), begin + 1))

    def _file(self, path: str) -> tuple[SourceFile, list[int]] | None:
        if path not in self._files:
            lines = linecache.getlines(path)  # knows the cells of notebooks too
            starts = [0]
            for line in lines:
                starts.append(starts[-1] + len(line))
            self._files[path] = (SourceFile(path, "".join(lines)), starts) if lines else None
        return self._files[path]
