"""Rematerializes values for their late readers, in place of keeping them through the memory peak.

    before:  t = tanh(h)   y = dot(t, w)   ..   d = multiply(e, t)
    after:   t = tanh(h)   y = dot(t, w)   ..   t.1 = tanh(h)   d = multiply(e, t.1)

A value that lives at the peak and is next read after it can be recomputed there, from parameters and from values that
stay alive for others anyway. The cost is the seconds of all recomputed instructions. Values that free most bytes per
second come first, until the peak is within the limit (Korthikanti et al., "Reducing activation recomputation in large
transformer models", 2022). Another peak may then be the highest: the search continues there, for as long as peaks get
lower. Collectives, control flow and effects are never repeated (`regather` repeats gathers).

XLA merges equal expressions, and would keep the value after all. For it, recomputed instructions read through a barrier
together with another operand of the late reader: they differ from all others, and cannot precede that operand.

If the peak is in a loop, values of its body are rematerialized as well, and entries of arrays that one loop saves for
another (`saved`). Where that takes less time, values of the entry lie on the host instead (`sent_away`), as entries do.
The instructions of the program keep their order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import ClassVar

from ...cost.attention import OutsideOfAttention
from ...cost.machine import SECOND
from ...cost.memory import at_peak, live_memory
from ...cost.seconds import Clock
from ...cost.sizes import Bytes, sized, timed
from ...cost.timeline import timeline
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.lifetimes import RESIDENT
from ...ir.brief import brief
from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import is_host_move
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.graph.op import Role
from ...ir.tools.trip_count import runs_of_computations
from ..base import Pass, PassContext
from .on_host import moves_to_host
from .regather import divert, readers_of
from .roles import can_repeat
from .saved import free_saved
from .sent_away import HostLink, begins_of, links_at, send_away, spread_leaves

_ROUNDS = 64  # peaks that are lowered one after the other
_LONGEST = 24  # instructions that make one value again
_LEAST_BYTES = 1 / 1000  # of the peak, that a value frees
_NO_LIMIT = Bytes()


class _Way(Enum):
    """A way to lower a peak: by stacks of loops, by values on the host or made again, or by those made again alone."""

    LOOPS = auto()
    AWAY = auto()
    AGAIN = auto()


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Rematerializes values until the program takes at most `memory` on a device (0: the machine's capacity), or as far
    as possible; after `barriers` if XLA is to run it. By `offload`, they may lie on the host instead.
    """

    name: ClassVar[str] = "rematerialize"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    memory: Bytes = _NO_LIMIT
    barriers: bool = False
    offload: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        limit, machine = float(self.memory or context.machine.capacity), context.machine
        old, before = live_memory(module, OutsideOfAttention.on(machine)).peak, timeline(module, machine).seconds
        count = rematerialize(module, Clock.of(module, machine), limit, self.barriers, self.offload)
        peak = live_memory(module, OutsideOfAttention.on(machine)).peak
        if peak > limit:
            context.diagnostics.remark(f"{self.name}: {sized(peak)} is as little as is reached, of {sized(limit)}")
        if count:
            context.diagnostics.remark(
                f"{self.name}: {done(module, count)}; peak {sized(old)} becomes {sized(peak)}, "
                f"{timed(before)} become {timed(timeline(module, machine).seconds)}"
            )
        return count > 0


def done(module: Module, count: int) -> str:
    """Says how a program keeps so many values for less memory."""
    moved = moves_to_host(module)
    again = [f"{count - moved} values are computed again"] if count > moved else []
    return ", ".join([*again, *([f"{moved} lie on the host"] if moved else [])])


def rematerialize(
    module: Module, clock: Clock, limit: float, barriers: bool = False, offload: bool = False, until: float = math.inf
) -> int:
    """Rematerializes values of the entry, and entries of stacks (`saved`), in place, until the memory peak is at most
    `limit` or gets no lower, or the moment `until` (of `time.monotonic`); with `barriers`, so that XLA does not merge
    values of the entry, and with `offload`, so that they may lie on the host as well. Returns the number of all.
    `clock` has the times of the program before.
    """
    machine = clock.machine
    kernels = OutsideOfAttention.on(machine)
    count, (peak, highest) = 0, at_peak(module, kernels)
    ways = (_Way.LOOPS, *((_Way.AWAY,) if offload and math.isfinite(machine.host) else ()), _Way.AGAIN)
    for _ in range(_ROUNDS):
        for way in ways if peak > limit and time.monotonic() < until else ():
            copies: dict[Instruction, Instruction] = {}
            trial, excess = clone_module(module, copies), peak - limit
            times, least = Clock.of(trial, machine), peak * _LEAST_BYTES
            chosen = free_saved(trial, times, excess, offload) if way is _Way.LOOPS else _round(
                trial, times, [copies[i] for i in highest], excess, least, barriers, way is _Way.AWAY)
            lower, there = at_peak(trial, kernels) if chosen else (peak, highest)
            if lower < peak:
                module.release()
                module.take(trial)
                peak, highest, count = lower, there, count + chosen
                break
            trial.release()
        else:
            break
    return count


@brief
@dataclass(frozen=True, slots=True)
class _Again:
    """A value to rematerialize: the instructions that recompute it, in order, its late readers, and the cost."""

    value: Instruction
    steps: list[Instruction]
    late: set[Instruction]
    seconds: float

    @property
    def needed(self) -> set[Instruction]:
        """The values whose live ranges extend to the recomputation."""
        return {o for s in self.steps for o in s.operands}.difference(self.steps)

    @property
    def rank(self) -> float:
        """Seconds per byte; less is better."""
        return self.seconds / self.value.shape.byte_size

    def take(self, scan: _Scan, barriers: bool) -> bool:
        """Rematerializes the value, unless another one needs it, or it needs one that is not kept any more."""
        if self.value in scan.kept or not scan.gone.isdisjoint(self.needed):
            return False
        scan.kept |= self.needed
        scan.gone.add(self.value)
        _emit(scan.computation, self, scan.place, barriers)
        return True


@brief
@dataclass(frozen=True, slots=True)
class _Away:
    """A value to move to the host and back: its late readers, and for each direction of the link the seconds from which
    on it may move, and those of the move.
    """

    value: Instruction
    late: set[Instruction]
    moves: tuple[tuple[float, float], tuple[float, float]]
    links: tuple[HostLink, HostLink]

    @property
    def rank(self) -> float:
        """Seconds per byte for which computation waits; less is better."""
        late = sum(link.late(move) - link.late() for link, move in zip(self.links, self.moves, strict=True))
        return late / self.value.shape.byte_size

    def take(self, scan: _Scan, barriers: bool) -> bool:
        """Moves the value, unless rematerialized ones need it; XLA needs no `barriers` then."""
        if self.value in scan.kept:
            return False
        scan.gone.add(self.value)
        for link, move in zip(self.links, self.moves, strict=True):
            link.moves.append(move)
        send_away(scan.computation, self.value, self.late, scan.at, min(self.late, key=scan.place.__getitem__))
        return True


def _round(
    module: Module, clock: Clock, peak: list[Instruction], excess: float, least: float, barriers: bool, away: bool
) -> int:
    """Rematerializes values of at least this size that live at the peak, in the entry or in the computations that run
    then, or moves those of the entry `away` to the host, until this many bytes are freed there. Returns their number.
    """
    runs = runs_of_computations(module)
    scans = [_Scan(i.parent, clock, i, runs[i.parent]) for i in peak if i.parent is not None]
    known: list[tuple[_Away | _Again, _Scan]] = [(f, s) for s in scans[:away] for f in s.movable(least)]
    known += [(f, s) for s in scans for f in s.candidates(least)]
    heap = [(f.rank, number, f, s) for number, (f, s) in enumerate(known)]
    heapify(heap)
    count = 0
    while heap and excess > 0:
        rank, number, found, scan = heappop(heap)
        if found.rank > rank:  # the link has become busier
            heappush(heap, (found.rank, number, found, scan))
        elif found.value not in scan.gone and found.take(scan, barriers):
            excess -= found.value.shape.device_bytes
            count += 1
    if away:
        spread_leaves(module.entry, clock)
    return count


@brief
@dataclass(slots=True)
class _Scan:
    """The uses of values of a computation, in which memory is highest `at` an instruction. `kept` must stay alive for
    rematerialized values, `gone` are rematerialized.
    """

    computation: Computation
    clock: Clock
    at: Instruction
    runs: int
    place: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    readers: dict[Instruction, set[Instruction]] = field(default_factory=dict[Instruction, set[Instruction]])
    kept: set[Instruction] = field(default_factory=set[Instruction])
    gone: set[Instruction] = field(default_factory=set[Instruction])

    def __post_init__(self) -> None:
        self.place = {i: n for n, i in enumerate(self.computation)}
        self.readers = {i: readers_of(i) for i in self.place}

    def candidates(self, least: float) -> Iterator[_Again]:
        """Yields values of at least this size that live through the peak and can be rematerialized after it."""
        for value, late in self._living(least):
            steps = self._steps(value, min(self.place[r] for r in late)) if can_repeat(value) else None
            if steps is not None:
                yield _Again(value, steps, late, self.runs * sum(self.clock.alone(s).total for s in steps))

    def movable(self, least: float) -> Iterator[_Away]:
        """Yields values of at least this size that live through the peak and can be on the host then."""
        begins = begins_of(list(self.place), self.clock)
        links = links_at(self.computation, self.clock, begins[self.place[self.at]], begins)
        for value, late in self._living(least):
            if value.shape == value.shape.without_layout() and not is_host_move(value):
                made, needed = begins[self.place[value] + 1], begins[min(self.place[r] for r in late)]
                seconds = value.shape.byte_size * self.clock.machine.host / SECOND
                yield _Away(value, late, ((made, seconds), (begins[-1] - needed, seconds)), links)

    def _living(self, least: float) -> Iterator[tuple[Instruction, set[Instruction]]]:
        """Yields values of at least this size that live through the peak unread, and their readers after it."""
        peak = self.place[self.at]
        for value, place in self.place.items():
            if place >= peak or not value.shape.is_array or value.shape.device_bytes < least or passes_on(value):
                continue
            if value.op.role in RESIDENT or value is self.computation.root:
                continue
            late = {r for r in self.readers[value] if self.place[r] > peak}
            if late and not any(self.place[r] == peak for r in self.readers[value]):
                yield value, late

    def _steps(self, value: Instruction, place: int) -> list[Instruction] | None:
        """Returns the instructions that recompute a value from values that live at a place; None if there are too many.
        """
        found, stack = {value}, [value]
        while stack:
            for operand in stack.pop().operands:
                if operand in found or self._lives(operand, place):
                    continue
                if not can_repeat(operand) or len(found) == _LONGEST:
                    return None
                found.add(operand)
                stack.append(operand)
        return sorted(found, key=self.place.__getitem__)

    def _lives(self, value: Instruction, place: int) -> bool:
        if value.op.role in RESIDENT or value is self.computation.root:
            return True
        return max((self.place[r] for r in self.readers[value]), default=-1) >= place


def _behind_barrier(computation: Computation, found: _Again, reader: Instruction) -> dict[Instruction, Instruction]:
    """Passes a value's inputs through an opt-barrier that waits for an operand of its reader; returns the results."""
    needed = sorted(found.needed, key=lambda v: v.name)
    inputs = [v for v in needed if v.shape.is_array and v.op.role is not Role.CONSTANT]
    if not inputs:
        return {}
    known = {found.value, *found.steps, *inputs}
    others = [o for o in reader.operands if o.shape.is_array and o not in known]
    packed = computation.build("tuple", *inputs, *others[-1:], like=found.value)
    barrier = computation.build("opt-barrier", packed, like=found.value)
    return {v: computation.build("get-tuple-element", barrier, index=n, like=v) for n, v in enumerate(inputs)}


def _emit(computation: Computation, found: _Again, place: dict[Instruction, int], barriers: bool) -> None:
    """Recomputes a value just before its first late reader."""
    first = min(found.late, key=place.__getitem__)
    with computation.at(before=first):
        copies = _behind_barrier(computation, found, first) if barriers else {}
        for step in found.steps:
            operands = [copies.get(o, o) for o in step.operands]
            copies[step] = clone_instruction(computation, step, operands, lambda called: called)
        divert(computation, found.value, copies[found.value], found.late)
    if not found.value.users:
        computation.remove(found.value)
