"""Reads tokens at a place in the text of a file, for header, computations and instructions."""

from __future__ import annotations

import re
from typing import NoReturn

from ...ir.diagnostics import Diagnostic, Location, Severity, SourceFile
from .errors import TextError
from .scan import IDENT, skip_space

_IDENT = re.compile(IDENT)
_NAME = re.compile(rf"%({IDENT})|({IDENT}):?")  # XLA reads `name:` as the name, everywhere
_STRAY = {
    ";": "no ';' ends an instruction", "#": "comments begin with //", "}": "this brace closes nothing",
    '"': "quotes stand around the text of attributes only",
}  # fmt: skip
_ATTRIBUTE = re.compile(rf"[ \t]+({IDENT}=)")
_TOKEN = re.compile(r"[A-Za-z0-9_.%\-]+|\S")


class Syntax(Exception):
    """An error from which reading resumes at a later place."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class Poisoned(Exception):
    """An instruction depends on one that could not be read, so there is no new error to report."""


class Cursor:
    """`place` is the offset of the next character of `text`."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.text = source.text
        self.place = 0

    def location(self, start: int, end: int) -> Location:
        return Location(self.source, start, end)

    def error(self, message: str, start: int, end: int | None = None, help: str | None = None,
              notes: tuple[Diagnostic, ...] = ()) -> NoReturn:
        """Raises Syntax at `text[start:end]`."""
        raise Syntax(self.finding(message, start, end, help, notes))

    def finding(self, message: str, start: int, end: int | None = None, help: str | None = None,
                notes: tuple[Diagnostic, ...] = ()) -> Diagnostic:
        """Returns an error at `text[start:end]` without raising it."""
        where = self.location(start, start + 1 if end is None else end)
        return Diagnostic(Severity.ERROR, message, where, help, notes)

    def warning(self, found: TextError, start: int, category: str) -> Diagnostic:
        """Reports a warning about a value that starts at `start`."""
        where = self.location(start + found.start, start + found.end)
        return Diagnostic(Severity.WARNING, found.message, where, found.help, category=category)

    def note(self, message: str, where: Location | None) -> tuple[Diagnostic, ...]:
        return (Diagnostic(Severity.NOTE, message, where),)

    def relay(self, error: TextError, start: int) -> NoReturn:
        """Raises the error of a value that starts at `start` as Syntax."""
        self.error(error.message, start + error.start, start + error.end, error.help)

    def skip(self) -> int:
        """Moves to the next token and returns its place."""
        try:
            self.place = skip_space(self.text, self.place)
        except TextError as error:
            self.relay(error, 0)
        return self.place

    def token(self) -> str:
        """Returns the next token for messages, without consuming it."""
        match = _TOKEN.match(self.text, self.place)
        return f"'{match[0]}'" if match else "the end of the text"

    def unexpected(self, wanted: str, help: str | None = None) -> NoReturn:
        start = self.skip()
        match = _TOKEN.match(self.text, start)
        self.error(f"{wanted} expected, found {self.token()}", start, match.end() if match else start + 1, help)

    def at(self, token: str) -> bool:
        """Returns whether the next token begins with this text."""
        return self.text.startswith(token, self.skip())

    def accept(self, token: str) -> bool:
        if self.at(token):
            self.place += len(token)
            return True
        return False

    def expect(self, token: str, where: str, help: str | None = None) -> int:
        """Consumes the token and returns its place. `where` says, for the message, what comes before it."""
        if not self.at(token):
            self.unexpected(f"'{token}' {where}", help)
        self.place += len(token)
        return self.place - len(token)

    def accept_comma(self) -> bool:
        """Consumes the comma before an attribute. Raises Syntax for an attribute of the same line without one."""
        match = _ATTRIBUTE.match(self.text, self.place)
        if match is not None:
            self.error(f"',' before '{match[1]}' expected", match.start(1), match.end(1))
        return self.accept(",")

    def accept_word(self, word: str) -> bool:
        """Consumes a whole identifier."""
        match = _IDENT.match(self.text, self.skip())
        if match is None or match[0] != word:
            return False
        self.place = match.end()
        return True

    def name(self, what: str, help: str | None = None) -> tuple[str, int]:
        """Consumes a name; returns it without its `%`, and its place."""
        start = self.skip()
        match = _NAME.match(self.text, start)
        if match is None:
            self.unexpected(what, _STRAY.get(self.text[start : start + 1], help))
        self.place = match.end()
        return match[1] or match[2], start
