"""Errors that ops and sharding rules raise. Callers that know the instruction add its location."""

from __future__ import annotations


class _OpError(Exception):
    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class ShapeError(_OpError):
    """Reports operands or attributes that do not fit the op. The verifier adds the instruction's location."""


class NotEvaluable(_OpError):
    """Reports an op that numpy cannot compute, such as a foreign custom-call. `message` gives the reason, `help` the
    remedy.
    """
