"""Simulates a per-device program over time: collectives overlap the ops after them in the order of the text.

One engine computes, in the order of the text. A collective is issued when this engine comes to it, starts when its own
engine (`Machine.engine`), or all that `engines_of` names, have finished all earlier ones, and is awaited where its
result is first read. Tuples, elements of tuples, views and barriers read nothing. The done of a start waits at its
place. Computation is slower while a collective runs, if the machine says so (`Machine.overlap`).

A loop's body is simulated once for all trips, and once more for the first trip if collectives from outside are then
running. Collectives that a computation starts are awaited at its end at the latest, so nothing is in flight between
trips. A loop without collectives is one op. A conditional runs its slowest branch. The time is linear in the size of
the program.

Collectives that share links share an engine, and one runs after the other: on a torus those of one of its axes, or of
one direction along it, else those that use one level of links. The model leaves out that memory is shared, and that a
collective of two levels may leave one of them idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ir.brief import brief
from ..ir.checked_call import checked
from ..ir.graph.host_memory import is_host_move
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.tools.spmd import require_per_device
from .machine import Machine
from .presets import as_machine
from .seconds import Clock
from .simulation import EngineSimulation, Steps

COMPUTE = "compute"  # the name of the engine that computes
TOGETHER = " + "  # between the names of engines that one collective occupies

HIDDEN, EXPOSED = 0.9, 0.1  # shares of overlapped time: at least, and at most


@dataclass(slots=True)
class Event:
    """One activity of an engine, or of several at the same time (`axis 0 + axis 1`), from `start` to `end` in seconds
    from the start of the program.

    For a collective, `issued` is the time at which computation comes to its place, `needed` the time at which it comes
    to the first use, and `waited` are the seconds by which the collective delays computation: it waits for the
    collective, or is slower during it. An instruction of a loop has the times of one trip, and stands for `trips` of
    them. `bytes` are those that a device receives, or those of memory that an op reads and writes.
    """

    instruction: Instruction
    engine: str
    issued: float
    start: float
    end: float
    bytes: int
    trips: int = 1
    needed: float = 0.0
    waited: float = 0.0

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def is_collective(self) -> bool:
        return self.engine != COMPUTE and not is_host_move(self.instruction)

    @property
    def is_computed(self) -> bool:
        return self.engine == COMPUTE

    @property
    def seconds(self) -> float:
        """The time of one trip."""
        return self.end - self.start

    @property
    def hidden(self) -> float:
        """The share of a collective's time, 0 to 1, that is overlapped."""
        return 1.0 - min(self.waited / self.seconds, 1.0) if self.seconds > 0 else 1.0

    @property
    def state(self) -> str:
        """Whether a collective is `hidden` (at least 0.9 of its time), `exposed` (at most 0.1) or `partial`."""
        return state_of(self.hidden)


def state_of(hidden: float) -> str:
    """Classifies a collective by the share of its time that is overlapped: `hidden`, `partial` or `exposed`."""
    return "hidden" if hidden >= HIDDEN else "exposed" if hidden <= EXPOSED else "partial"


@brief
@dataclass(frozen=True, slots=True)
class Timeline:
    """The forecast of one execution: its `events` by issue, and `seconds` until everything is done.

    `compute` are the seconds of all ops if no collective slowed them. `busy` are the seconds in which each engine of
    collectives runs one. All trips of loops count.
    """

    events: tuple[Event, ...]
    seconds: float
    compute: float
    busy: dict[str, float]

    @property
    def exposed(self) -> float:
        """The seconds by which collectives, and moves to and from the host, delay computation and the end."""
        return max(self.seconds - self.compute, 0.0)

    @property
    def communication(self) -> float:
        """The seconds of all collectives."""
        return sum(e.seconds * e.trips for e in self.events if e.is_collective)

    @property
    def moves(self) -> float:
        """The seconds of all moves to and from the host."""
        return sum(e.seconds * e.trips for e in self.events if is_host_move(e.instruction))

    @property
    def collectives(self) -> list[Event]:
        """The collectives by issue. One in a loop may have two events: for the first trip and for all others."""
        return [e for e in self.events if e.is_collective]


@checked
def timeline(module: Module, machine: Machine | str, clock: Clock | None = None) -> Timeline:
    """Returns the timeline of one execution of a per-device program on a machine, or on that of a text such as `h100`.

    `clock` may be that of an earlier call on the same machine, if the program has changed in its order only. Raises
    CompileError for a program with shardings that is not partitioned.
    """
    require_per_device(module, even_plain=False)
    clock = clock or Clock.of(module, as_machine(machine))
    noting = _Noting(clock, Steps(), clock.machine.overlap, notes=True)
    noting.run(module.entry, 1)
    return Timeline(tuple(noting.events), noting.now, clock.serial(module.entry).compute, noting.occupied)


def timeline_seconds(module: Module, clock: Clock, steps: Steps | None = None) -> float:
    """Returns only the `seconds` of a program's timeline, which is faster.

    `steps` may be those of an earlier call, if the program has changed in its order only.
    """
    simulation = EngineSimulation(clock, Steps() if steps is None else steps, clock.machine.overlap)
    simulation.run(module.entry, 1)
    return simulation.now


@brief
@dataclass(slots=True)
class _Noting(EngineSimulation):
    """A simulation that notes what happens: all `events`, and the seconds for which each engine of collectives is
    `occupied`. `queues` hold the unfinished collectives of each, `started` those that a computation awaits.
    """

    events: list[Event] = field(default_factory=list[Event])
    occupied: dict[str, float] = field(default_factory=dict[str, float])
    queues: dict[str, deque[Event]] = field(default_factory=dict[str, deque[Event]])
    started: dict[Instruction, Event] = field(default_factory=dict[Instruction, Event])

    def compute(self, instruction: Instruction, seconds: float, trips: int) -> None:
        if seconds > 0:
            start = self.now
            self.advance(seconds)
            self._attribute(start)
            size = 0 if instruction.op.is_control else self.clock.touched(instruction)
            self.events.append(Event(instruction, COMPUTE, start, start, self.now, size, trips, self.now))

    def start(
        self, instruction: Instruction, inner: Instruction, seconds: float, engines: tuple[str, ...], slows: bool,
        trips: int,
    ) -> float:  # fmt: skip
        # `super` without arguments fails in dataclasses with slots
        end = EngineSimulation.start(self, instruction, inner, seconds, engines, slows, trips)
        queues = [self.queues.setdefault(engine, deque()) for engine in engines]
        start = max([self.now, *(queue[-1].end for queue in queues if queue)])
        size = self.clock.received(inner)
        event = Event(instruction, TOGETHER.join(engines), self.now, start, end, size, trips, -1.0)
        self.events.append(event)
        self.started[instruction] = event
        for engine, queue in zip(engines, queues, strict=True):
            queue.append(event)
            self.occupied[engine] = self.occupied.get(engine, 0.0) + seconds * trips
        return end

    def await_all(self, started: Iterable[Instruction], ends: Mapping[Instruction, float]) -> None:
        for instruction in started:
            event = self.started[instruction]
            if event.needed < 0:
                event.needed = self.now
            if event.end > self.now:
                self._pending(self.now)
                blocking: Event | None = event
                while blocking is not None:  # what an engine waits for ends when it starts
                    blocking.waited += blocking.end - max(blocking.start, self.now)
                    blocking = self._before(blocking) if blocking.start > self.now else None
                self.now = event.end

    def _before(self, event: Event) -> Event | None:
        """Returns the collective whose end lets this one start; one without a duration lets none wait."""
        queued = (other for engine in event.engine.split(TOGETHER) for other in self.queues[engine])
        return next((other for other in queued if other.end == event.start > other.start), None)

    def _attribute(self, now: float) -> None:
        """Counts that computation was slower from this time on as waiting for the collectives that ran."""
        slowdown = 1 - self.overlap
        while slowdown > 0 and now < self.now and (pending := [e for e in self._pending(now) if e.is_collective]):
            running = [event for event in pending if event.start <= now]
            until = min(self.now, *(event.end if event.start <= now else event.start for event in pending))
            for event in running:
                event.waited += (until - now) * slowdown / len(running)
            now = until

    def _pending(self, now: float) -> list[Event]:
        """Removes finished collectives, and returns the next one of each engine: it runs, or waits for another engine.
        """
        for queue in self.queues.values():
            while queue and queue[0].end <= now:
                queue.popleft()
        return list({id(queue[0]): queue[0] for queue in self.queues.values() if queue}.values())
