"""Decisions that other times turn: the collectives that serve a value here, and those that serve it there.

A program is partitioned for both machines, and the collectives that serve each op are compared. Collectives that are
slower or faster by the error of a machine's forecasts tell which decisions are too close for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cost.collectives import Collective, collectives
from ..cost.machine import Machine
from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext
from ..passes.pipelines import partition
from .columns import columns

UNKNOWN = 0.15  # the error where no forecast of the machine was compared
_HEAD = "for", "here", "there", "source"


@dataclass(frozen=True, slots=True)
class Turned:
    """The collectives that serve an op on two machines, in words; `nothing` where it needs none. `bytes` are the most
    that a device sends for it on one of them.
    """

    op: str
    here: str
    there: str
    source: str
    bytes: int


def turned(here: Sequence[Collective], there: Sequence[Collective]) -> list[Turned]:
    """Returns the ops whose collectives differ, most bytes first."""
    grouped: list[dict[tuple[str, str], list[Collective]]] = [{}, {}]
    for side, given in zip(grouped, (here, there), strict=True):
        for c in given:
            side.setdefault((c.cause.partition(" of ")[2], c.source or c.op_name), []).append(c)
    found: list[Turned] = []
    for op, source in dict.fromkeys((*grouped[0], *grouped[1])):
        sides = [side.get((op, source), []) for side in grouped]
        one, two = (" + ".join(sorted(map(_text, side))) or "nothing" for side in sides)
        if one != two:
            most = max(sum(c.sent_bytes for c in side) for side in sides)
            found.append(Turned(op or "the program", one, two, source, most))
    return sorted(found, key=lambda t: -t.bytes)


def what_if(module: Module, context: PassContext, machine: Machine) -> list[Turned]:
    """Returns the decisions that another machine turns. The module stays as it is. Raises CompileError."""
    return turned(*(_partitioned(module, context, one) for one in (context.machine, machine)))


def close_decisions(module: Module, context: PassContext) -> list[Turned]:
    """Returns the decisions that turn if collectives are slower or faster by the error of the machine's forecasts.
    Raises CompileError.
    """
    machine = context.machine
    share = 1 + (machine.error or UNKNOWN)
    here = _partitioned(module, context, machine)
    found = [turned(here, _partitioned(module, context, machine.slower(by))) for by in (share, 1 / share)]
    return list({(t.op, t.source): t for one in found for t in one}.values())


def remark_close(found: Sequence[Turned], diagnostics: Diagnostics) -> None:
    """Remarks on decisions of `close_decisions`."""
    for t in found:
        why = "the times differ by less than the error of forecasts"
        diagnostics.remark(f"close: {t.here} for {t.op}, in place of {t.there}: {why}", category="close", cost=t.bytes)


def _partitioned(module: Module, context: PassContext, machine: Machine) -> list[Collective]:
    own = PassContext(num_devices=context.num_devices, default_devices=context.default_devices, machine=machine)
    return collectives(partition(clone_module(module), own))


def _text(c: Collective) -> str:
    served = f", {c.cause.partition(' of ')[0]}" if c.cause else ""
    return f"{c.kind} of {c.buffer_bytes:,} bytes over {c.groups}{served}" + (f" x {c.count}" if c.count != 1 else "")


def turned_table(found: Sequence[Turned]) -> str:
    """Returns one line per decision."""
    rows = [(t.op, t.here, t.there, t.source) for t in found]
    return columns([_HEAD, *rows], (False,) * len(_HEAD))
