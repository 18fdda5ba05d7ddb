"""Simulates a per-device program over time: collectives overlap the ops after them in the order of the text.

One engine computes, in the order of the text. A collective is issued when this engine comes to it, starts when its own
engine (`Machine.engine`), or all that `engines_of` names, have finished all earlier ones, and is awaited where its
result is first read. Tuples, elements of tuples, views and barriers read nothing. The done of a start waits at its
place. Computation is slower while a collective runs, if the machine says so (`Machine.overlap`).

A loop's body is simulated once for all trips, and once more for the first trip if collectives from outside are then
running. Collectives that a computation starts are awaited at its end at the latest, so nothing is in flight between
trips. A loop without collectives is one op. A conditional runs its slowest branch. The time is linear in the size of
the program.

Collectives that share links share an engine, and one runs after the other: on a torus those of one of its axes, else
those that use one level of links. The model leaves out that memory is shared, and that a collective of two levels may
leave one of them idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.analysis.awaited import InFlight
from ..ir.brief import brief
from ..ir.checked_call import checked
from ..ir.graph.computation import Computation
from ..ir.graph.host_memory import is_host_move, runs_apart
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.ops.starts import Starts
from .machine import Machine
from .presets import as_machine
from .seconds import Clock, trips_of

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
        """The seconds by which collectives delay computation, and the end."""
        return max(self.seconds - self.compute, 0.0)

    @property
    def communication(self) -> float:
        """The seconds of all collectives."""
        return sum(e.seconds * e.trips for e in self.events if e.is_collective)

    @property
    def collectives(self) -> list[Event]:
        """The collectives by issue. One in a loop may have two events: for the first trip and for all others."""
        return [e for e in self.events if e.is_collective]


@checked
def timeline(module: Module, machine: Machine | str, clock: Clock | None = None) -> Timeline:
    """Returns the timeline of one execution of a per-device program on a machine, or on that of a text such as `h100`.

    `clock` may be that of an earlier call on the same machine, if the program has changed in its order only.
    """
    simulation = _simulated(module, clock or Clock.of(module, as_machine(machine)), True)
    serial = simulation.clock.serial(module.entry)
    return Timeline(tuple(simulation.events), simulation.now, serial.compute, simulation.busy)


def timeline_seconds(module: Module, clock: Clock, steps: Steps | None = None) -> float:
    """Returns only the `seconds` of a program's timeline, which is faster.

    `steps` may be those of an earlier call, if the program has changed in its order only.
    """
    return _simulated(module, clock, False, steps).now


def _simulated(module: Module, clock: Clock, notes_all: bool, steps: Steps | None = None) -> _Simulation:
    simulation = _Simulation(clock, clock.machine.overlap, notes_all, {} if steps is None else steps)
    simulation.run(module.entry, 1)
    return simulation


class _Step(NamedTuple):
    """An instruction that takes time: its seconds, the collectives that it awaits, the collective that it starts, and
    the engines of that one.
    """

    seconds: float
    awaited: tuple[Instruction, ...]
    inner: Instruction | None = None
    engines: tuple[str, ...] = ()
    is_control: bool = False


Steps = dict[Computation, dict[Instruction, _Step]]
"""The instructions of computations that take time, or wait. In any order they do the same."""


def _steps(computation: Computation, clock: Clock) -> dict[Instruction, _Step]:
    flying, parts = InFlight[Instruction](), clock.parts
    found: dict[Instruction, _Step] = {}
    readers = flying.readers
    for i in computation:
        awaited = tuple(dict.fromkeys(flying.awaited(i))) if i in readers else ()
        op = i.op
        if not runs_apart(i) and not op.is_control:
            if (seconds := parts(i).compute) > 0 or awaited:
                found[i] = _Step(seconds, awaited)
        elif (inner := collective_in(i)) is not None:
            found[i] = _Step(clock.started(i), awaited, inner, clock.engines(inner))
            flying.start(i, i)
        else:
            found[i] = _Step(parts(i).compute, awaited, is_control=True)
    return found


@brief
@dataclass(slots=True)
class _Simulation:
    """The state of all engines at the time `now`. `queues` hold the unfinished collectives of each. The events are
    those of collectives, and of computation where it `notes_all`.
    """

    clock: Clock
    overlap: float
    notes_all: bool
    steps: Steps
    now: float = 0.0
    events: list[Event] = field(default_factory=list[Event])
    queues: dict[str, deque[Event]] = field(default_factory=dict[str, deque[Event]])
    busy: dict[str, float] = field(default_factory=dict[str, float])

    def run(self, computation: Computation, trips: int) -> None:
        """Runs a computation from now until its end; what happens stands for this number of trips."""
        if computation not in self.steps:
            self.steps[computation] = _steps(computation, self.clock)
        steps, adds = self.steps[computation], self.overlap >= 1 and not self.notes_all
        started: dict[Instruction, Event] = {}
        for instruction in computation:
            if (step := steps.get(instruction)) is None:
                continue
            seconds, awaited, inner, engines, is_control = step
            if awaited:
                self.await_all(map(started.__getitem__, awaited))
            if inner is not None:
                started[instruction] = self.start(instruction, inner, seconds, engines, trips)
            elif is_control:
                self.control(instruction, seconds, trips)
            elif adds:
                self.now += seconds
            else:
                self.compute(instruction, seconds, trips)
        self.await_all(started.values())

    def control(self, instruction: Instruction, own: float, trips: int) -> None:
        """Runs the callees of control flow, which takes seconds of its `own`."""
        called, serial = instruction.called(), self.clock.serial
        if instruction.op.role is Role.BRANCH:
            called = [max(called, key=lambda c: serial(c).total)]
        count = trips_of(instruction)
        if not any(serial(c).collectives for c in called):
            self.compute(instruction, own + count * sum(serial(c).compute for c in called), trips)
            return
        self.compute(instruction, own, trips)
        if count > 1 and self.pending():
            self.once(called, trips)
            count -= 1
        if count:
            before = self.now
            self.once(called, trips * count)
            self.now += (count - 1) * (self.now - before)

    def once(self, called: Iterable[Computation], trips: int) -> None:
        for computation in called:
            self.run(computation, trips)

    def compute(self, instruction: Instruction, seconds: float, trips: int) -> None:
        """Computes for this number of seconds, or longer during collectives."""
        if seconds > 0:
            start = self.now
            self.advance(seconds)
            if self.notes_all:
                size = 0 if instruction.op.is_control else self.clock.touched(instruction)
                self.events.append(Event(instruction, COMPUTE, start, start, self.now, size, trips, self.now))

    def start(
        self, instruction: Instruction, inner: Instruction, seconds: float, engines: tuple[str, ...], trips: int
    ) -> Event:
        """Issues a collective, or the start of a computation with one, to its engines."""
        size = self.clock.received(inner) if self.notes_all else 0
        queues = [self.queues.setdefault(engine, deque()) for engine in engines]
        start = max([self.now, *(queue[-1].end for queue in queues if queue)])
        event = Event(instruction, TOGETHER.join(engines), self.now, start, start + seconds, size, trips, -1.0)
        self.events.append(event)
        for engine, queue in zip(engines, queues, strict=True):
            queue.append(event)
            self.busy[engine] = self.busy.get(engine, 0.0) + seconds * trips
        return event

    def await_all(self, events: Iterable[Event]) -> None:
        """Stalls computation until these collectives are done."""
        for event in events:
            if event.needed < 0:
                event.needed = self.now
            if event.end > self.now:
                self.pending()
                blocking: Event | None = event
                while blocking is not None:  # what an engine waits for ends when it starts
                    blocking.waited += blocking.end - max(blocking.start, self.now)
                    blocking = self.before(blocking) if blocking.start > self.now else None
                self.now = event.end

    def before(self, event: Event) -> Event | None:
        """Returns the collective whose end lets this one start; one without a duration lets none wait."""
        queued = (other for engine in event.engine.split(TOGETHER) for other in self.queues[engine])
        return next((other for other in queued if other.end == event.start > other.start), None)

    def advance(self, seconds: float) -> None:
        """Advances computation by this amount, at the speed that the running collectives leave; moves to and from the
        host slow nothing.
        """
        while self.overlap < 1 and (pending := [e for e in self.pending() if e.is_collective]):
            running = [event for event in pending if event.start <= self.now]
            until = min(event.end if event.start <= self.now else event.start for event in pending)
            speed = self.overlap if running else 1.0
            possible = (until - self.now) * speed
            elapsed = seconds / speed if seconds < possible else until - self.now
            for event in running:
                event.waited += elapsed * (1 - self.overlap) / len(running)
            if seconds < possible:
                self.now += elapsed
                return
            self.now, seconds = until, seconds - possible
        self.now += seconds

    def pending(self) -> list[Event]:
        """Removes finished collectives, and returns the next one of each engine: it runs, or waits for another engine.
        """
        for queue in self.queues.values():
            while queue and queue[0].end <= self.now:
                queue.popleft()
        return list({id(queue[0]): queue[0] for queue in self.queues.values() if queue}.values())


def collective_in(instruction: Instruction) -> Instruction | None:
    """Returns the collective that an instruction is, or that the start of a computation runs, or the move to or from
    the host; None for other ops.
    """
    if runs_apart(instruction):
        return instruction
    if not (instruction.op.is_control and instruction.op.interface(Starts)):
        return None
    return next((i for c in instruction.called() for i in c if i.op.is_collective), None)
