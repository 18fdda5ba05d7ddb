"""The error of programs that no schedule brings into memory, and the memory that bounds those that fit."""

from __future__ import annotations

from typing import Any, NoReturn

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import live_memory
from ...ir.diagnostics import CompileError, Diagnostic, Severity
from ...ir.graph.module import Module
from .sizes import sized

_LARGEST = 3  # buffers that are said beside parameters and constants


class DoesNotFit(CompileError):
    """Reports a program that no schedule found brings into memory; `peak` are the fewest bytes that were reached."""

    def __init__(self, diagnostic: Diagnostic, peak: int) -> None:
        super().__init__([diagnostic])
        self.peak = peak

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics[0], self.peak)


def refuse(module: Module, peak: int, limit: float, machine: Machine) -> NoReturn:
    """Raises DoesNotFit for a program whose `peak` is above the limit, with the largest buffers there."""
    memory = live_memory(module, OutsideOfAttention.on(machine))
    largest = ", ".join(f"{b.name} ({b.kind}, {sized(b.bytes)})" for b in memory.buffers[:5])
    text = (f"{module.name} needs {sized(peak)} on a device at {memory.at}, {sized(peak - limit)} more "
            f"than the limit of {sized(limit)}")  # fmt: skip
    raise DoesNotFit(Diagnostic(Severity.ERROR, text, help=f"the largest buffers there: {largest}"), peak)


def what_lives(module: Module, machine: Machine) -> str:
    """Says the memory that a program holds at its peak: parameters and constants, and the largest other buffers."""
    memory = live_memory(module, OutsideOfAttention.on(machine))
    others = [b for b in memory.buffers if b.kind not in ("parameter", "constant")][:_LARGEST]
    largest = [f"{b.name} ({sized(b.bytes)})" for b in others]
    given = f"{sized(memory.parameters + memory.constants)} of parameters and constants"
    return f"at {memory.at} it holds " + ", ".join([given, *largest])
