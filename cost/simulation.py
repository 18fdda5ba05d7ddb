"""Advances the engines of a device through a program: the arithmetic of timelines, which note what happens.

Computation is slower while a collective runs, if the machine says so (`Machine.overlap`). Since collectives never
stop each other, the times at which one runs are known as soon as they are issued: `busy` joins those of all engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.analysis.awaited import InFlight
from ..ir.brief import brief
from ..ir.graph.computation import Computation
from ..ir.graph.host_memory import is_host_move, runs_apart
from ..ir.graph.instruction import Instruction
from ..ir.graph.op import Role
from ..ir.ops.starts import Starts
from .seconds import Clock, trips_of


class TimedStep(NamedTuple):
    """An instruction that takes time: its seconds, the collectives that it awaits, the collective that it starts, the
    engines of that one, and whether computation is slower meanwhile.
    """

    seconds: float
    awaited: tuple[Instruction, ...]
    inner: Instruction | None = None
    engines: tuple[str, ...] = ()
    slows: bool = False
    is_control: bool = False


Steps = dict[Computation, dict[Instruction, TimedStep]]
"""The instructions of computations that take time, or wait. In any order they do the same."""


def steps_of(computation: Computation, clock: Clock) -> dict[Instruction, TimedStep]:
    """Returns the steps of a computation."""
    flying, parts = InFlight[Instruction](), clock.parts
    found: dict[Instruction, TimedStep] = {}
    readers = flying.readers
    for i in computation:
        awaited = tuple(dict.fromkeys(flying.awaited(i))) if i in readers else ()
        op = i.op
        if not runs_apart(i) and not op.is_control:
            if (seconds := parts(i).compute) > 0 or awaited:
                found[i] = TimedStep(seconds, awaited)
        elif (inner := collective_in(i)) is not None:
            slows = clock.machine.overlap < 1 and not is_host_move(i)  # moves to and from the host slow nothing
            found[i] = TimedStep(clock.started(i), awaited, inner, clock.engines(inner), slows)
            flying.start(i, i)
        else:
            found[i] = TimedStep(parts(i).compute, awaited, is_control=True)
    return found


def collective_in(instruction: Instruction) -> Instruction | None:
    """Returns the collective that an instruction is, or that the start of a computation runs, or the move to or from
    the host; None for other ops.
    """
    if runs_apart(instruction):
        return instruction
    if not (instruction.op.is_control and instruction.op.interface(Starts)):
        return None
    return next((i for c in instruction.called() for i in c if i.op.is_collective), None)


@brief
@dataclass(slots=True)
class EngineSimulation:
    """The state of all engines at the time `now`: when each becomes `free`, and the times from `now` on at which a
    collective runs that slows computation (`busy`), in order and apart from each other. `notes` says that each
    computation is looked at, not only those beneath collectives.
    """

    clock: Clock
    steps: Steps
    overlap: float  # the speed of computation while a collective runs
    now: float = 0.0
    free: dict[str, float] = field(default_factory=dict[str, float])
    busy: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    notes: bool = False
    alone: dict[Computation, float] = field(default_factory=dict[Computation, float])  # seconds, with nothing in flight

    def run(self, computation: Computation, trips: int) -> None:
        """Runs a computation from now until its end; what happens stands for this number of trips."""
        if computation not in self.steps:
            self.steps[computation] = steps_of(computation, self.clock)
        ends: dict[Instruction, float] = {}
        self.proceed(computation, self.steps[computation], ends, trips)
        self.await_all(ends, ends)

    def proceed(
        self, instructions: Iterable[Instruction], steps: Mapping[Instruction, TimedStep],
        ends: dict[Instruction, float], trips: int = 1,
    ) -> None:  # fmt: skip
        """Runs instructions of one computation; `ends` are those of the collectives that it has started."""
        busy, notes, find = self.busy, self.notes, steps.get
        for instruction in instructions:
            if (step := find(instruction)) is None:
                continue
            seconds, awaited, inner, engines, slows, is_control = step
            if awaited:
                self.await_all(awaited, ends)
            if inner is not None:
                ends[instruction] = self.start(instruction, inner, seconds, engines, slows, trips)
            elif is_control:
                self.control(instruction, seconds, trips)
            elif notes:
                self.compute(instruction, seconds, trips)
            elif busy:
                self.advance(seconds)
            else:
                self.now += seconds

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
        if count > 1 and self.has_flights():
            self.once(called, trips)
            count -= 1
        if count:
            before = self.now
            self.once(called, trips * count)
            self.now += (count - 1) * (self.now - before)

    def once(self, called: Iterable[Computation], trips: int) -> None:
        """Runs computations one after the other, from now until the end of the last."""
        is_alone = not self.notes and not self.has_flights()  # each awaits what it starts
        for computation in called:
            if not is_alone:
                self.run(computation, trips)
                continue
            if computation not in self.alone:
                before = self.now
                self.run(computation, trips)
                self.alone[computation] = self.now - before
            else:
                self.now += self.alone[computation]

    def has_flights(self) -> bool:
        """Whether a collective has not ended."""
        return any(end > self.now for end in self.free.values())

    def compute(self, instruction: Instruction, seconds: float, trips: int) -> None:
        """Computes for this number of seconds, or longer during collectives."""
        self.advance(seconds)

    def start(
        self, instruction: Instruction, inner: Instruction, seconds: float, engines: tuple[str, ...], slows: bool,
        trips: int,
    ) -> float:  # fmt: skip
        """Issues a collective, or the start of a computation with one, to its engines; returns its end."""
        free, start = self.free, self.now
        for engine in engines:
            if (before := free.get(engine, 0.0)) > start:
                start = before
        end = start + seconds
        for engine in engines:
            free[engine] = end
        if slows:
            self._slow(start, end)
        return end

    def await_all(self, started: Iterable[Instruction], ends: Mapping[Instruction, float]) -> None:
        """Stalls computation until these collectives are done."""
        for instruction in started:
            if (end := ends[instruction]) > self.now:
                self.now = end

    def advance(self, seconds: float) -> None:
        """Advances computation by this amount, at the speed that the running collectives leave."""
        now, busy, speed = self.now, self.busy, self.overlap
        while busy:
            start, end = busy[0]
            if start > now:
                if seconds <= start - now:
                    break
                seconds -= start - now
                now = start
            if end > now:
                if seconds < (possible := (end - now) * speed):
                    self.now = now + seconds / speed
                    return
                seconds -= possible
                now = end
            del busy[0]
        self.now = now + seconds

    def _slow(self, start: float, end: float) -> None:
        """Notes the time of a collective that slows computation."""
        busy = self.busy
        if not busy or start > busy[-1][1]:
            busy.append((start, end))
            return
        joined = [(start, end), *(b for b in busy if b[1] >= start and b[0] <= end)]
        whole = min(b[0] for b in joined), max(b[1] for b in joined)
        busy[:] = [*(b for b in busy if b[1] < start), whole, *(b for b in busy if b[0] > end)]
