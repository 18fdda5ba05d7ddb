"""Errors that ops and their rules raise; whoever knows the place in the program reports them there."""

from __future__ import annotations


class ShapeError(Exception):
    """Operands or attributes that do not fit the op. The verifier reports it at the instruction."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class NotEvaluable(Exception):
    """The op has no meaning that numpy can compute (a foreign custom-call, say). The message says why, `help` what to
    do about it.
    """

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
