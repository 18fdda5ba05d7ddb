"""The forecast of a program in its order: the overlap of each collective, time and memory.

This file describes any per-device program, whatever scheduled it. A program that was scheduled says in its attributes
how fast it could be at best; the gap follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ..cost.attention import OutsideOfAttention
from ..cost.collectives import collective_of
from ..cost.groups import named_mesh
from ..cost.machine import Machine
from ..cost.memory import LiveMemory, live_memory
from ..cost.presets import machine_name
from ..cost.runs import Execution
from ..cost.seconds import Clock
from ..cost.simulation import collective_in
from ..cost.timeline import Event, Timeline, state_of, timeline
from ..ir.brief import brief
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.stack_frames import source_line
from ..ir.grouping import group_by, numberless
from ..ir.in_notebooks import InNotebooks
from ..ir.sharding.mesh import Mesh
from ..ir.tools.names import matching
from ..passes.schedule.bound import Bound
from ..passes.schedule.recorded import recorded_bound
from .columns import columns

_HEAD = ("collective", "state", "delays", "bytes", "cause", "groups", "runs", "start", "done", "used", "source")
_RIGHT = (False, False, True, True, False, False, True, True, True, True, False)
_STATES = ("hidden", "partial", "exposed")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A collective in a schedule; one that combines several `arrays` is a bucket.

    Seconds count from the start of the program; of a loop those of the first trip. `issued`: its place is reached;
    `start` to `done`: it runs; `used`: computation comes to its first use. `seconds` are those of one execution,
    `waited` those by which it delays computation, on average over all `runs`. `bytes` are those of its operands (of its
    result for an all-gather), `wire_bytes` what a device sends.
    """

    name: str
    kind: str
    bytes: int
    wire_bytes: int
    arrays: int
    groups: str
    engine: str
    runs: int
    issued: float
    start: float
    done: float
    used: float
    seconds: float
    waited: float
    hidden: float
    state: str
    cause: str
    op_name: str
    source: str


@brief
@dataclass(frozen=True, slots=True)
class Schedule(InNotebooks):
    """The forecast of a program on a machine, in seconds and bytes of a device.

    `bound` are the least seconds of any schedule, and `gap` how far `seconds` lie above, both None if nobody has said.
    """

    machine: str
    seconds: float
    compute: float
    communication: float
    exposed: float
    bound: float | None
    gap: float | None
    peak: int
    at: str
    collectives: tuple[Scheduled, ...]
    timeline: Timeline
    memory: LiveMemory


def schedule_of(
    module: Module, machine: Machine, clock: Clock | None = None, memory: LiveMemory | None = None
) -> Schedule:
    """Returns the forecast of a per-device program in its order. `clock` has its times on the machine, and `memory` its
    live memory, if they are known.
    """
    line, memory = timeline(module, machine, clock), memory or live_memory(module, OutsideOfAttention.on(machine))
    found = group_by(line.collectives, lambda event: event.instruction)  # names repeat in other computations
    devices, mesh = module.devices, named_mesh(module)
    rows = tuple(
        _scheduled(events, Execution(collective_in(started) or started, 1, True), devices, mesh)
        for started, events in found.items()
    )
    bound = recorded_bound(module)
    gap = max(line.seconds / bound - 1, 0.0) if bound else None  # the attribute is rounded
    return Schedule(machine_name(machine), line.seconds, line.compute, line.communication, line.exposed, bound, gap,
                    memory.peak, memory.at, rows, line, memory)  # fmt: skip


@brief
@dataclass(frozen=True)
class ScheduleReport:
    """The schedule of a per-device program, the one `before` it got a new order, and its longest path, if known."""

    module: Module
    schedule: Schedule
    before: Schedule | None = None
    path: Bound | None = None

    def record(self) -> dict[str, object]:
        """Returns the report as JSON."""
        path = {} if self.path is None else {"critical": path_record(self.path)}
        return schedule_record(self.module, self.schedule, self.before) | path

    def text(self, only: Sequence[str] = (), every: bool = False) -> str:
        """Returns the table of collectives, those that the patterns `only` fit, and a summary. Unless `every` row is
        asked for, those that differ in numbers of names only are one. Raises CompileError if no collective fits.
        """
        shown, before, devices = collectives_called(self.schedule.collectives, only), self.before, self.module.devices
        parts = [schedule_table(shown, every)] if shown else []
        if self.path is not None:
            parts.append(critical_table(self.path))
        count = f"{devices} device{'s' * (devices != 1)}"
        parts.append(f"{self.module.name}: {count}; times in ms\n{schedule_summary(self.schedule)}")
        if before is not None:
            parts[-1] += (f"\nbefore: {ms(before.seconds)}, {ms(before.exposed)} of it exposed; "
                          f"peak {before.peak:,} bytes")  # fmt: skip
        return "\n\n".join(parts)


def live_bytes(found: Schedule) -> Iterator[tuple[float, int]]:
    """Yields seconds and live bytes whenever these change. An instruction without an event takes no time."""
    starts = {e.name: e.issued for e in reversed(found.timeline.events)}
    now, before = 0.0, -1
    for moment in found.memory.curve:
        now = max(now, starts.get(moment.name, now))
        if moment.bytes != before:
            before = moment.bytes
            yield now, before


def _scheduled(events: Sequence[Event], run: Execution, devices: int, mesh: Mesh | None) -> Scheduled:
    """Describes a collective by its events: the first trip and the others of a loop may differ."""
    found, first = collective_of(run, devices, mesh), events[0]
    runs = sum(e.trips for e in events)
    waited = sum(e.waited * e.trips for e in events) / runs
    hidden = 1.0 - min(waited / first.seconds, 1.0) if first.seconds > 0 else 1.0
    return Scheduled(
        found.name, found.kind, found.buffer_bytes, found.wire_bytes, found.arrays, found.groups, first.engine, runs,
        first.issued, first.start, first.end, first.needed, first.seconds, waited, hidden, state_of(hidden),
        found.cause, found.op_name, found.source,
    )  # fmt: skip


def collectives_called(found: Sequence[Scheduled], patterns: Sequence[str]) -> Sequence[Scheduled]:
    """Returns the collectives of which a word fits one of the patterns; all if there are none. Raises CompileError if
    none fits.
    """
    kept = matching(found, patterns, lambda c: (c.name, c.kind, c.cause, c.source, c.groups, c.state))
    if patterns and not kept:
        fields = "names, kinds, causes, sources, groups and states"
        fail(f"no collective fits {' or '.join(patterns)}", help=f"patterns are of {fields}; * matches anything")
    return kept


def schedule_table(found: Sequence[Scheduled], every: bool = False) -> str:
    """Returns one line per collective, in the order of their starts, with times in milliseconds.

    Unless `every` one is asked for, those that differ in numbers of names only are one line, the first, with their
    bytes and delays together.
    """
    groups = [[c] for c in found] if every else alike_collectives(found)
    return columns([_HEAD, *map(_row, groups)], _RIGHT)


def schedule_summary(found: Schedule) -> str:
    """Returns the times of the whole, how many collectives are hidden, the bound, and the peak of memory."""
    counts = {state: sum(c.state == state for c in found.collectives) for state in _STATES}
    shares = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none"
    moves = f" and {ms(found.timeline.moves)} of moves to and from the host" if found.timeline.moves else ""
    lines = [
        f"{ms(found.seconds)} on {found.machine}: {ms(found.compute)} of ops, "
        f"{ms(found.exposed)} exposed of {ms(found.communication)} of collectives{moves}",
        f"collectives: {shares}",
        f"peak memory: {found.peak:,} bytes at {found.at}",
    ]
    if found.bound is not None and found.gap is not None:
        lines.append(f"at least {ms(found.bound)} in any order; gap {found.gap:.1%}")
    return "\n".join(lines)


def critical_table(bound: Bound) -> str:
    """Returns the critical path, one line per instruction of at least a thousandth of it; callees are indented."""
    long = [s for s in bound.path if s.seconds * s.runs > 1e-3 * bound.length]
    rows = [
        ("  " * s.depth + f"{s.instruction.opcode} {s.instruction.name}", str(s.runs), f"{1e3 * s.seconds:.4g}",
         f"{s.seconds * s.runs / bound.length:.1%}", source_text(s.instruction))
        for s in long
    ]  # fmt: skip
    head = "critical path", "runs", "ms each", "share", "source"
    short = len(bound.path) - len(long)
    more = f", {short} shorter instructions included" if short else ""
    return f"{columns([head, *rows], (False, True, True, True, False))}\n{ms(bound.length)} along this path{more}"


def path_record(bound: Bound) -> dict[str, object]:
    """Returns the critical path as JSON: its length in seconds, and all its instructions."""
    path = [{"name": s.instruction.name, "seconds": s.seconds, "runs": s.runs, "depth": s.depth} for s in bound.path]
    return {"length": bound.length, "path": path}


def source_text(instruction: Instruction) -> str:
    """Returns the line of the user's source that an instruction comes from, and its name there."""
    op_name = instruction.metadata.op_name if instruction.metadata else ""
    return " ".join(filter(None, (source_line(instruction), op_name)))


def ms(seconds: float) -> str:
    """Returns a time in milliseconds, with three digits or all before the point."""
    time = seconds * 1e3
    return f"{time:.3g} ms" if time < 999.5 else f"{time:,.0f} ms"


def alike_collectives(found: Sequence[Scheduled]) -> list[list[Scheduled]]:
    """Returns groups of collectives that differ only in times and in numbers of names, in the order of their first."""
    groups = group_by(found, lambda c: (c.kind, c.state, c.groups, c.wire_bytes, c.arrays, c.runs, c.source,
                                        numberless(c.cause), numberless(c.op_name)))  # fmt: skip
    return list(groups.values())


def _row(group: Sequence[Scheduled]) -> tuple[str, ...]:
    c, more = group[0], f" (+{len(group) - 1})" if len(group) > 1 else ""
    times = (f"{1e3 * t:.4g}" for t in (c.start, c.done, c.used))
    delays, size = sum(c.waited for c in group), sum(c.bytes for c in group)
    name = c.name if c.name.startswith(c.kind) else f"{c.kind} {c.name}"
    return (f"{name}{more}", c.state, f"{1e3 * delays:.4g}", f"{size:,}", c.cause, c.groups, str(c.runs),
            *times, " ".join(filter(None, (c.source, c.op_name))))  # fmt: skip


def schedule_record(module: Module, found: Schedule, before: Schedule | None) -> dict[str, object]:
    """Returns the forecast of a scheduled program as JSON, and the main times of `before` it was scheduled."""
    whole = {
        name: getattr(found, name)
        for name in ("machine", "seconds", "compute", "communication", "exposed", "bound", "gap", "peak", "at")
    }
    whole["moves"] = found.timeline.moves
    rows = [asdict(c) for c in found.collectives]
    old = {n: getattr(before, n) for n in ("seconds", "exposed", "peak")} if before is not None else None
    return {"program": module.name, "devices": module.devices, **whole, "before": old, "collectives": rows}
