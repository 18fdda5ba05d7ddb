"""The error of programs that no schedule brings into memory, and the memory that bounds those that fit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import LiveBuffer, LiveMemory, alike_buffers, at_peak, live_memory
from ...cost.sizes import sized, timed
from ...ir.diagnostics import CompileError, Diagnostic, Diagnostics, Severity
from ...ir.graph.module import Module
from ...ir.graph.stack_frames import named_with_source
from .least_held import least_held
from .ways_tried import WaysTried

_LARGEST = 5  # groups of equal buffers that are said beside parameters and constants


class DoesNotFit(CompileError):
    """Reports a program that no schedule found brings into memory; `peak` are the fewest bytes that were reached."""

    def __init__(self, diagnostic: Diagnostic, peak: int) -> None:
        super().__init__([diagnostic])
        self.peak = peak

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics[0], self.peak)

    def beside(self, ways: Iterable[str]) -> DoesNotFit:
        """Returns the error with a note of other ways, each with the least memory that it reached."""
        found = self.diagnostics[0]
        said = _note(f"tried as well: {'; '.join(ways)}")
        return DoesNotFit(replace(found, notes=(*found.notes, said)), self.peak)


def refuse(module: Module, peak: int, limit: float, machine: Machine, tried: WaysTried) -> NoReturn:
    """Raises DoesNotFit for a program whose `peak` is above the limit. It says the largest buffers there, the bytes
    that no order goes below, and what was `tried`.
    """
    memory = live_memory(module, OutsideOfAttention.on(machine))
    text = (f"{module.name} needs {sized(peak)} on a device at {memory.at}, {sized(peak - limit)} more "
            f"than the limit of {sized(limit)}")  # fmt: skip
    raise DoesNotFit(Diagnostic(Severity.ERROR, text, help=f"the largest buffers there: {_lives(memory)}",
                                notes=_notes(module, limit, machine, tried)), peak)  # fmt: skip


def say_bound(
    diagnostics: Diagnostics, name: str, module: Module, seconds: float, limit: float, machine: Machine,
    tried: WaysTried,
) -> None:
    """Remarks that a limit keeps programs out that are faster than the one that a pass chose: with the memory of its
    peak, the bytes that no order goes below, and what was `tried`.
    """
    faster = tried.faster(limit, seconds)
    found = f", as {sized(faster[0])} for {timed(faster[1])}" if faster is not None else ""
    text = f"{name}: faster programs need more than {sized(limit)}{found}; {_held(module, machine)}"
    diagnostics.remark(text, cost=math.inf, notes=_notes(module, limit, machine, tried))


def _held(module: Module, machine: Machine) -> str:
    """Says the memory that a program holds at its peak: parameters and constants, and the largest other buffers."""
    memory = live_memory(module, OutsideOfAttention.on(machine))
    inner = at_peak(module, OutsideOfAttention.on(machine))[1][-1]
    return f"at {named_with_source(inner)} it holds {_lives(memory)}"


def _lives(memory: LiveMemory) -> str:
    """Says the bytes of parameters and constants, and the largest other buffers at the peak."""
    given = f"{sized(memory.parameters + memory.constants)} of parameters and constants"
    others = _largest([b for b in memory.buffers if b.kind not in ("parameter", "constant")])
    return ", ".join(filter(None, (given, others)))


def _notes(module: Module, limit: float, machine: Machine, tried: WaysTried) -> tuple[Diagnostic, ...]:
    least = least_held(module, machine)
    return _note(f"tried: {tried.said(limit)}"), _note(
        f"no order of these ops takes less than {sized(least.bytes)}: {sized(least.given)} of parameters and "
        f"constants, and those of {named_with_source(least.at)}"
    )


def _note(text: str) -> Diagnostic:
    return Diagnostic(Severity.NOTE, text)


def _largest(found: Iterable[LiveBuffer]) -> str:
    """Says the largest groups of equal buffers, with their kinds, bytes and the lines of their sources."""
    return ", ".join(_said(group) for group in alike_buffers(list(found))[:_LARGEST])


def _said(group: list[LiveBuffer]) -> str:
    first, count = group[0], f"{len(group)} like " if len(group) > 1 else ""
    where = f", {first.source}" if first.source else ""
    return f"{count}{first.name} ({first.kind}, {sized(first.bytes * len(group))}{where})"
