"""Diagnostics: errors, warnings and remarks with their locations and help.

A frontend or pass collects every finding in a `Diagnostics` list and raises one `CompileError` at the end, so that a
user sees all mistakes of a file at once. A `Location` is a span of a `SourceFile`; line and column are computed only
when a message is shown, because a module has many locations and shows few of them.
"""

from __future__ import annotations

import bisect
from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NoReturn

from .in_notebooks import InNotebooks
from .shown import excerpt, for_terminal


class Severity(StrEnum):
    """The severity of a diagnostic. Only errors stop a compilation. Notes belong to another diagnostic."""

    ERROR = "error"
    WARNING = "warning"
    REMARK = "remark"
    NOTE = "note"


CATEGORIES = {
    "replication": "a value or an op that was to be divided is whole on every device",
    "gather": "devices receive more of a value than their own share of it, because an op needs a dimension whole",
    "work": "devices compute alike what could be divided among them",
    "padding": "tiles of an uneven dimension hold much that is no data",
    "donation": "memory of a parameter is not used again for a result",
    "deadlock": "it cannot be shown that all devices of a group come to a collective",
    "constant": "a constant means something else than its text seems to say",
    "close": "a decision turns on less than the error of forecasts",
}
"""Categories of remarks and warnings with their descriptions; `--werror` selects by these names."""


class SourceFile:
    """The text a module was read from. Messages show `name` (a path, or `<stdin>`)."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def __repr__(self) -> str:
        return f"<SourceFile {self.name}>"

    @cached_property
    def _line_starts(self) -> array[int]:
        starts = array("q", [0])
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    @property
    def lines(self) -> int:
        """The number of lines, at least one."""
        return len(self._line_starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Returns line and column, both counted from 1, of a character offset."""
        line = bisect.bisect_right(self._line_starts, offset) - 1
        return line + 1, offset - self._line_starts[line] + 1

    def offset(self, line: int, column: int) -> int:
        """Returns the character offset of a line and a column, both counted from 1; the end for a line beyond it."""
        starts = self._line_starts
        return starts[line - 1] + column - 1 if line <= len(starts) else len(self.text)

    def line_text(self, line: int) -> str:
        """Returns the text of a line (counted from 1), without its line break."""
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which would make creating one, as for each line, slower
class Location:
    """The span of characters [start, end) of a source file. It is never changed."""

    source: SourceFile
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


WIDTH = 120  # columns of an excerpt where the terminal is not narrower


@dataclass(frozen=True, slots=True)
class Diagnostic(InNotebooks):
    """One message. `notes` point to related locations, `help` suggests what the user can do.

    `category` is one of `CATEGORIES` for remarks and warnings about lost performance or precision, else empty. `cost`
    is how much is lost: bytes, or multiply-adds; infinite of remarks that answer an option, which always come first.
    """

    severity: Severity
    message: str
    location: Location | None = None
    help: str | None = None
    notes: tuple[Diagnostic, ...] = ()
    category: str = ""
    cost: float = field(default=0.0, compare=False)

    @property
    def line(self) -> int:
        """The line, counted from 1; 0 if the message has no location."""
        return self.location.line if self.location else 0

    @property
    def column(self) -> int:
        """The column, counted from 1; 0 if the message has no location."""
        return self.location.column if self.location else 0

    def render(self, width: int = WIDTH) -> str:
        """Renders `file:line:col: severity: text` with the source line, a caret, notes and help. What a terminal could
        act on is escaped, and excerpts have at most `width` columns.
        """
        lines = [for_terminal(self.headline())]
        if self.location:
            lines += _excerpt(self.location, width)
        lines += [note.render(width) for note in self.notes]
        if self.help:
            lines.append(for_terminal(f"  help: {self.help}"))
        return "\n".join(lines)

    def headline(self) -> str:
        """Returns the first line of the message, as it is: `file:line:col: severity: text [category]`."""
        where = f"{self.location}: " if self.location else "hloom: "
        category = f" [{self.category}]" if self.category else ""
        return f"{where}{self.severity.value}: {self.message}{category}"

    def __str__(self) -> str:
        return self.render()


def _excerpt(location: Location, width: int) -> list[str]:
    line, column = location.source.position(location.start)
    number = str(line)
    text = location.source.line_text(line)
    marked = max(1, min(location.end - location.start, len(text) - column + 1))
    shown, carets = excerpt(text, column - 1, marked, width - len(number) - 5)
    return [f"  {number} | {shown}", f"  {' ' * len(number)} | {carets}"]


class CompileError(Exception):
    """Reports user input that cannot be compiled. `diagnostics` holds all findings, errors first, in order found."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("\n".join(d.render() for d in diagnostics))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics,)


class InternalError(Exception):
    """Reports a bug in Hloom, or in a pass or an op that an embedder adds, never an error in user input. `pass_name`
    names the pass, and its class where that is not Hloom's. The exception that a pass raised is the `__cause__`. Long
    messages are shortened, because they may quote any object.
    """

    def __init__(self, message: str, pass_name: str | None = None) -> None:
        message = for_terminal(message)
        super().__init__(f"{pass_name}: {message}" if pass_name else message)
        self.pass_name = pass_name


def without_errors(found: list[Diagnostic]) -> list[Diagnostic]:
    """Returns findings of which none is an error. Raises CompileError with all of them, errors first, if one is."""
    if any(d.severity is Severity.ERROR for d in found):
        raise CompileError(sorted(found, key=lambda d: d.severity is not Severity.ERROR))
    return found


@dataclass
class Diagnostics:
    """Collects findings. `raise_errors` raises one CompileError with all errors, if there are any. Without `remarks`
    none are kept, and those that take long to find are not looked for.
    """

    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    remarks: bool = True

    def error(
        self,
        message: str,
        location: Location | None = None,
        help: str | None = None,
        notes: tuple[Diagnostic, ...] = (),
    ) -> None:
        self.found.append(Diagnostic(Severity.ERROR, message, location, help, notes))

    def warning(
        self, message: str, location: Location | None = None, help: str | None = None, category: str = ""
    ) -> None:
        self.found.append(Diagnostic(Severity.WARNING, message, location, help, category=category))

    def remark(
        self,
        message: str,
        location: Location | None = None,
        help: str | None = None,
        category: str = "",
        cost: float = 0.0,
        notes: tuple[Diagnostic, ...] = (),
    ) -> None:
        if self.remarks:
            self.found.append(Diagnostic(Severity.REMARK, message, location, help, notes, category, cost))

    @property
    def has_errors(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.found)

    def raise_errors(self) -> None:
        if self.has_errors:
            raise CompileError([d for d in self.found if d.severity is Severity.ERROR])


def fail(message: str, location: Location | None = None, help: str | None = None) -> NoReturn:
    """Raises a `CompileError` with this one error."""
    raise CompileError([Diagnostic(Severity.ERROR, message, location, help)])
