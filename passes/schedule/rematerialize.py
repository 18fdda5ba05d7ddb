"""Rematerializes values for their late readers, in place of keeping them through the memory peak.

    before:  t = tanh(h)   y = dot(t, w)   ..   d = multiply(e, t)
    after:   t = tanh(h)   y = dot(t, w)   ..   t.1 = tanh(h)   d = multiply(e, t.1)

At the peak, the cheapest choice of values that live on and of values that are made again frees as many bytes as are
needed (`across_peak`; Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, choose
by hand). Another peak may then be the highest: the search continues there, for as long as peaks get lower.

XLA merges equal expressions, and would keep the value after all. For it, recomputed instructions read through a barrier
together with another operand of the late reader: they differ from all others, and cannot precede that operand.

If the peak is in a loop, values of its body are rematerialized as well, and entries of arrays that one loop saves for
another (`saved`). Where that takes less time, values of the entry lie on the host instead (`sent_away`), as entries do.
The instructions of the program keep their order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import ClassVar

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import at_peak, live_memory
from ...cost.seconds import Clock
from ...cost.sizes import Bytes, sized, timed
from ...cost.timeline import timeline
from ...ir.brief import brief
from ...ir.graph.host_memory import is_host_move
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.tools.trip_count import runs_of_computations
from ..base import Pass, PassContext
from .across_peak import AcrossPeak, AcrossPeaks, MadeAgain
from .on_host import moves_to_host
from .regather import readers_of, unused_channels
from .saved import free_saved
from .sent_away import HostLink, begins_of, links_at, send_away, spread_leaves

_ROUNDS = 64  # peaks that are lowered one after the other
_TRIES = 4  # at one peak
_FREED = 0.8  # of the bytes asked for, below which fewer may lower the peak more
_LESS = 0.99  # of the peak, that is worth a further search
_FULL = 0.95  # of the limit, that is near enough
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
    end = lowered(start_of(module, clock.machine), limit, clock.machine, barriers, offload, until)
    if end.module is not module:
        module.release()
        module.take(end.module)
    return end.count


def start_of(module: Module, machine: Machine) -> Tried:
    """Returns a program of which nothing is rematerialized yet."""
    return Tried(module, 0, *at_peak(module, OutsideOfAttention.on(machine)))


def lowered(start: Tried, limit: float, machine: Machine, barriers: bool, offload: bool, until: float) -> Tried:
    """Returns a copy of a program that is rematerialized as `rematerialize` says, or itself if nothing is. What is
    found of its peak is kept for other limits.
    """
    ways = (_Way.LOOPS, *((_Way.AWAY,) if offload and math.isfinite(machine.host) else ()), _Way.AGAIN)
    now = start
    for _ in range(_ROUNDS):
        for way in ways:
            if now.peak <= limit or time.monotonic() >= until:
                return now
            new = now.within(limit, way, machine, barriers, offload, until)
            if new is not None:
                if now is not start:
                    now.module.release()
                is_little, now = new.peak > max(limit, _LESS * now.peak), new
                if is_little:
                    return now
                break
        else:
            break
    return now


@brief
@dataclass(slots=True)
class Tried:
    """A program with so many rematerialized values, its peak, and the instructions that run then. `across` are the
    values that live then, once they are known.
    """

    module: Module
    count: int
    peak: int
    highest: list[Instruction]
    across: AcrossPeaks | None = None

    def _across(self, machine: Machine) -> AcrossPeaks:
        if self.across is None:
            self.across = _across(self.module, self.highest, machine)
        return self.across

    def within(
        self, limit: float, way: _Way, machine: Machine, barriers: bool, offload: bool, until: float
    ) -> Tried | None:
        """Returns a copy of which values are rematerialized in a way: the one that is just within the limit, or has the
        lowest peak of those tried; None if none has a lower one.

        Where more or fewer bytes are freed in the end than were asked for, that is asked for the next time.
        """
        found = AcrossPeaks([]) if way is _Way.LOOPS else self._across(machine)
        best, excess, low, high = self, self.peak - limit, 0.0, found.living
        count, peak = 0, self.peak
        excess = excess if way is _Way.LOOPS else min(excess, high)
        last: _Choice | None = None
        for _ in range(_TRIES):
            choice = None if way is _Way.LOOPS else _choice(found, excess, self.peak * _LEAST_BYTES, way is _Way.AWAY)
            if choice is None and way is not _Way.LOOPS:
                break
            if choice is None or choice != last:  # else it would be the program of the last try
                copies: dict[Instruction, Instruction] = {}
                module = clone_module(self.module, copies)
                if choice is None:
                    count = free_saved(module, Clock.of(module, machine), excess, offload)
                else:
                    count = _freed(module, copies, found.found, choice, barriers)
                outside = OutsideOfAttention.on(machine)
                peak, highest = at_peak(module, outside) if count else (self.peak, self.highest)
                new = Tried(module, self.count + count, peak, highest)
                if new.rank(limit) < best.rank(limit):
                    best, new = new, best
                if new is not self:
                    new.module.release()
            last = choice
            if way is _Way.LOOPS or not count or limit * _FULL <= peak <= limit or time.monotonic() >= until:
                break
            low, high = (excess, high) if peak <= self.peak - _FREED * excess else (low, excess)
            excess += peak - limit
            excess = excess if 0 < excess < high else (low + high) / 2
        return best if best is not self else None

    def rank(self, limit: float) -> tuple[bool, float]:
        """Returns the key by which one is better: the highest peak within the limit, else the lowest."""
        return self.peak > limit, self.peak if self.peak > limit else -self.peak


@brief
@dataclass(frozen=True, slots=True)
class _Away:
    """A value to move to the host and back: its late readers, and for each direction of the link the seconds from which
    on it may move, and those of the move.
    """

    value: Instruction
    late: list[Instruction]
    moves: tuple[tuple[float, float], tuple[float, float]]
    links: tuple[HostLink, HostLink]

    @property
    def rank(self) -> float:
        """Seconds per byte for which computation waits; less is better."""
        late = sum(link.late(move) - link.late() for link, move in zip(self.links, self.moves, strict=True))
        return late / self.value.shape.byte_size

    def take(self) -> None:
        """Gives the value a place on the link."""
        for link, move in zip(self.links, self.moves, strict=True):
            link.moves.append(move)


def _across(module: Module, highest: Iterable[Instruction], machine: Machine) -> AcrossPeaks:
    """Returns the values of a program that live while some instructions run."""
    runs, clock = runs_of_computations(module), Clock.of(module, machine)
    return AcrossPeaks([AcrossPeak(i.parent, clock, i, runs[i.parent]) for i in highest if i.parent is not None])


@brief
@dataclass(frozen=True, slots=True)
class _Choice:
    """Values to make again in each computation, and those of the entry to move to the host, with their late readers."""

    again: tuple[MadeAgain, ...]
    away: tuple[tuple[Instruction, tuple[Instruction, ...]], ...] = ()


def _choice(across: AcrossPeaks, excess: float, least: float, away: bool) -> _Choice | None:
    """Chooses values that live at the peak until so many bytes are freed there: to make them again, or to move those of
    the entry `away` to the host, of at least so many bytes. None if none are to move: it is the same by the other way.
    """
    (price, chosen), found = across.to_free(excess), across.found
    if not away:
        return _Choice(tuple(chosen))
    freed = sum(one.living - choice.kept for one, choice in zip(found, chosen, strict=True))
    most = price if freed >= excess else math.inf
    moved, excess = _moved_away(found[0], most, excess, least)
    if not moved:
        return None
    left = across.without({one.value for one in moved})
    again = left.to_free(excess, price)[1] if excess > 0 else []
    return _Choice(tuple(again), tuple((one.value, tuple(one.late)) for one in moved))


def _freed(
    module: Module, copies: dict[Instruction, Instruction], found: Sequence[AcrossPeak], choice: _Choice, barriers: bool
) -> int:
    """Rematerializes values in a copy, and moves others to the host. Returns their number."""
    for value, late in choice.away:
        send_away(module.entry, copies[value], [copies[r] for r in late], copies[found[0].at], copies[late[0]])
    channels = unused_channels(module)
    made = sum(one.make(some, copies, barriers, channels) for one, some in zip(found, choice.again, strict=False))
    if choice.away:
        spread_leaves(module.entry, found[0].clock.copied(copies))  # most instructions are those of the program before
    return len(choice.away) + made


def _moved_away(across: AcrossPeak, price: float, excess: float, least: float) -> tuple[list[_Away], float]:
    """Returns values to move to the host that cost less than the price for each byte, until this many bytes are freed,
    and the bytes that are left to free.
    """
    heap = [(one.rank, number, one) for number, one in enumerate(_movable(across, least))]
    heapify(heap)
    found: list[_Away] = []
    while heap and excess > 0 and heap[0][0] <= price:
        rank, number, one = heappop(heap)
        if one.rank > rank:  # the link has become busier
            heappush(heap, (one.rank, number, one))
        else:
            one.take()
            excess -= one.value.shape.device_bytes
            found.append(one)
    return found, excess


def _movable(across: AcrossPeak, least: float) -> Iterator[_Away]:
    """Yields values of at least this size that live through the peak unread and can be on the host then."""
    computation, place, clock, peak = across.computation, across.place, across.clock, across.at
    begins = begins_of(list(place), clock)
    links = links_at(computation, clock, begins[place[peak]], begins)
    for value, after in across.late.items():
        shape = value.shape
        if not shape.is_array or shape.device_bytes < least or value is computation.root or is_host_move(value):
            continue
        if shape == shape.without_layout() and not any(place[r] == place[peak] for r in readers_of(value)):
            made, needed = begins[place[value] + 1], begins[place[after[0]]]
            seconds = clock.moved(shape.byte_size)
            yield _Away(value, after, ((made, seconds), (begins[-1] - needed, seconds)), links)
