"""The error of programs that no schedule brings into memory."""

from __future__ import annotations

from typing import Any

from ...ir.diagnostics import CompileError, Diagnostic


class DoesNotFit(CompileError):
    """Reports a program that no schedule found brings into memory; `peak` are the fewest bytes that were reached."""

    def __init__(self, diagnostic: Diagnostic, peak: int) -> None:
        super().__init__([diagnostic])
        self.peak = peak

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics[0], self.peak)
