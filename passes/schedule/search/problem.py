"""The scheduling problem in numbers: computation in a fixed order, tensors to gather and to reduce, memory.

A program is a sequence of segments of computation. A segment needs a gathered tensor, which is held until another one;
a segment makes a reduced tensor, which a later one may need. Transfers of adjacent tensors can share a bucket, which
pays the latency once. Computation and communication are engines that each do one thing at a time, in the order in which
the program starts them.

Computation may be slower while a transfer runs: `overlap` interpolates the time of a plan between that without overlap
and that with full overlap.

A plan is the order of all starts. `simulate` gives its time. A segment waits for its gathered tensors. The previous
bucket of reductions is awaited before the next one starts, so that only one holds memory.

Seconds and bytes; nothing here knows programs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

NEVER = 1 << 60  # the segment that needs a reduced tensor which only the result needs


class ActionKind(Enum):
    """The actions of a plan."""

    GATHER = "gather"
    COMPUTE = "compute"
    REDUCE = "reduce"


class Action(NamedTuple):
    """One start: of the next segment, or of a bucket that ends before tensor `end`."""

    kind: ActionKind
    end: int = 0


Plan = tuple[Action, ...]

_COMPUTE = Action(ActionKind.COMPUTE)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to gather or to reduce.

    `seconds` is the time of its transfer without latency, `size` the bytes held. Segment `at` is the first that needs a
    gathered tensor, or the one that makes a reduced one; `until` is the last that reads a gathered tensor, or the first
    that needs a reduced one. Tensors of one `key` share a message, of several keys only the place in the order.
    `packing` is the time to pack and unpack it, which a bucket of several tensors takes.
    """

    seconds: float
    size: float
    at: int
    until: int
    key: int = 0
    packing: float = 0.0


@dataclass(frozen=True)
class SchedulingProblem:
    """Segments in seconds; tensors to gather by first use; tensors to reduce in order of definition; the latency of
    each key; the bytes that tensors may take while each segment runs; the share of computation and communication that
    overlaps.
    """

    segments: tuple[float, ...]
    gathers: tuple[Tensor, ...]
    reductions: tuple[Tensor, ...]
    latencies: tuple[float, ...]
    room: tuple[float, ...]
    overlap: float = 1.0

    def with_room(self, room: tuple[float, ...]) -> SchedulingProblem:
        """Returns the problem with other room. Both share what is known and does not depend on the room."""
        found = replace(self, room=room)
        by_room = ("room", "limits", "least_room")
        vars(found).update((name, value) for name, value in vars(self).items() if name not in by_room)
        return found

    @cached_property
    def work(self) -> list[float]:
        """The seconds of all segments before each, and of all."""
        return list(accumulate(self.segments, initial=0.0))

    @cached_property
    def needed(self) -> list[int]:
        """The number of gathered tensors that segments up to each need."""
        return _counts([t.at for t in self.gathers], len(self.segments))

    @cached_property
    def made(self) -> list[int]:
        """The number of reduced tensors that segments before each have made."""
        return [0, *_counts([t.at for t in self.reductions], len(self.segments))]

    @cached_property
    def due(self) -> list[int]:
        """The number of reduced tensors, in order, that segments up to each need."""
        found = [0] * (len(self.segments) + 1)
        for number, tensor in enumerate(self.reductions):
            if tensor.until < len(self.segments):
                found[tensor.until] = max(found[tensor.until], number + 1)
        return list(accumulate(found, max))

    @cached_property
    def gather_seconds(self) -> Transfers:
        return Transfers(self.gathers, self.latencies)

    @cached_property
    def reduce_seconds(self) -> Transfers:
        return Transfers(self.reductions, self.latencies)

    @cached_property
    def limits(self) -> list[float]:
        """The bytes above which tensors exceed the room of each segment, and of the end."""
        limits = [room * (1 + 1e-9) for room in self.room]
        return [*limits, *limits[-1:]]

    @cached_property
    def least_room(self) -> float:
        """The room of the segment with least of it."""
        return min(self.room)

    @cached_property
    def _weights(self) -> list[float]:
        return list(accumulate((t.size for t in self.gathers), initial=0.0))

    @cached_property
    def _gradients(self) -> list[float]:
        return list(accumulate((t.size for t in self.reductions), initial=0.0))

    @cached_property
    def _held(self) -> dict[int, list[float]]:
        return {}

    def held(self, segment: int, gathered: int) -> float:
        """Returns the bytes of the first `gathered` tensors that this segment or a later one reads."""
        found = self._held.get(segment)
        if found is None:
            sizes = [t.size if t.until >= segment else 0.0 for t in self.gathers]
            found = self._held[segment] = list(accumulate(sizes, initial=0.0))
        return found[gathered]

    def unreduced(self, segment: int, reduced: int) -> float:
        """Returns the bytes of tensors made before a segment and not among the first `reduced`."""
        return self._gradients[self.made[segment]] - self._gradients[reduced]

    def in_gathers(self, first: int, end: int) -> float:
        """Returns the bytes of a bucket of gathers."""
        return self._weights[end] - self._weights[first]

    def in_bucket(self, first: int, end: int) -> float:
        """Returns the bytes of a bucket of reductions."""
        return self._gradients[end] - self._gradients[first]

    def fits(self, size: float, segment: int) -> bool:
        """Whether this many bytes fit into a segment's limit."""
        return size <= self.limits[segment]


def _counts(places: Sequence[int], count: int) -> list[int]:
    return [bisect_right(places, segment) for segment in range(count)]


class Transfers:
    """The seconds of buckets of tensors."""

    def __init__(self, tensors: Sequence[Tensor], latencies: Sequence[float]) -> None:
        self.tensors = tensors
        self.latencies = latencies
        self._seconds = list(accumulate((t.seconds for t in tensors), initial=0.0))
        self._packing = list(accumulate((t.packing for t in tensors), initial=0.0))
        keys = {t.key for t in tensors}
        self._latency: dict[tuple[int, int], float] = {}
        self._same = latencies[keys.pop()] if len(keys) == 1 else None

    def __call__(self, first: int, end: int) -> float:
        """Returns the seconds of a bucket of tensors `first` to `end`, excluded."""
        packing = self._packing[end] - self._packing[first] if end > first + 1 else 0.0
        return self.latency(first, end) + self.transfer(first, end) + packing

    def transfer(self, first: int, end: int) -> float:
        """Returns the seconds of a bucket without latency and packing."""
        return self._seconds[end] - self._seconds[first]

    def left(self, first: int) -> float:
        """Returns the seconds of all tensors from `first` on, without latencies and packing."""
        return self._seconds[-1] - self._seconds[first]

    def latency(self, first: int, end: int) -> float:
        """Returns the latencies of a bucket: one per key."""
        if end <= first:
            return 0.0
        if self._same is not None:
            return self._same
        found = self._latency.get((first, end))
        if found is None:
            found = sum(self.latencies[key] for key in {t.key for t in self.tensors[first:end]})
            self._latency[first, end] = found
        return found


@dataclass(slots=True)
class PlanRun:
    """A plan executed up to some action: the numbers computed, gathered and reduced, when the engines are free, how
    long the network was busy, when each gathered tensor arrives, and the last bucket of reductions with its bytes while
    it is in flight.
    """

    problem: SchedulingProblem
    computed: int = 0
    gathered: int = 0
    reduced: int = 0
    compute: float = 0.0
    network: float = 0.0
    busy: float = 0.0
    reduced_at: float = 0.0
    last_reduction: int = 0
    in_flight: float = 0.0
    peak: float = 0.0
    excess: float = 0.0
    arrivals: list[float] = field(default_factory=list[float])
    actions: list[Action] = field(default_factory=list[Action])

    @property
    def memory(self) -> float:
        p, segment = self.problem, self.computed
        return p.held(segment, self.gathered) + p.unreduced(segment, self.reduced) + self.in_flight

    def gather(self, end: int) -> None:
        """Starts a bucket of gathers that ends before tensor `end`."""
        self.actions.append(Action(ActionKind.GATHER, end))
        self._send(self.problem.gather_seconds(self.gathered, end))
        self.arrivals += [self.network] * (end - self.gathered)
        self.gathered = end
        self._note(self.computed)

    def reduce(self, end: int) -> None:
        """Starts a bucket of reductions that ends before tensor `end`, when the last one is through."""
        self.actions.append(Action(ActionKind.REDUCE, end))
        self.compute = max(self.compute, self.reduced_at)
        self._send(self.problem.reduce_seconds(self.reduced, end))
        self.reduced_at, self.last_reduction = self.network, self.reduced
        self.in_flight = self.problem.in_bucket(self.reduced, end)
        self.reduced = end
        self._note(self.computed)

    def step(self) -> None:
        """Computes the next segment. Raises ValueError if no gather of a needed tensor has started."""
        p, segment = self.problem, self.computed
        needed, due = p.needed[segment], p.due[segment]
        if needed > self.gathered or due > self.reduced:
            raise ValueError(f"segment {segment} needs a tensor that nothing sends")
        self.actions.append(_COMPUTE)
        if needed:
            self.compute = max(self.compute, self.arrivals[needed - 1])
        if due > self.last_reduction:
            self.compute = max(self.compute, self.reduced_at)
        self.compute += p.segments[segment]
        self.computed += 1
        self._note(segment)
        if self.compute >= self.reduced_at:
            self.in_flight = 0.0

    def _send(self, seconds: float) -> None:
        self.network = max(self.network, self.compute) + seconds
        self.busy += seconds

    def _note(self, segment: int) -> None:
        memory, p = self.memory, self.problem
        if memory > self.peak:
            self.peak = memory
        if memory > p.limits[segment]:
            self.excess = max(self.excess, memory - p.room[min(segment, len(p.room) - 1)])

    @property
    def seconds(self) -> float:
        return self._seconds(self.compute, self.network, self.busy)

    def _seconds(self, compute: float, network: float, busy: float) -> float:
        overlap = self.problem.overlap
        alone = self.problem.work[-1] + busy if overlap < 1 else 0.0
        return overlap * max(compute, network) + (1 - overlap) * alone

    def is_worse(self, than: Outcome) -> bool:
        """Whether the plan will certainly exceed another one: in memory, or else in time."""
        if self.excess != than.excess:
            return self.excess > than.excess
        p = self.problem
        send = p.gather_seconds.left(self.gathered) + p.reduce_seconds.left(self.reduced)
        compute = self.compute + p.work[-1] - p.work[self.computed]
        return self._seconds(compute, self.network + send, self.busy + send) > than.seconds * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a plan: seconds, peak bytes of its tensors, and the most bytes that do not fit at once."""

    plan: Plan
    seconds: float
    peak: float
    excess: float

    @property
    def is_within(self) -> bool:
        """Whether the tensors fit everywhere."""
        return not self.excess


def outcome(run: PlanRun) -> Outcome:
    """Returns the outcome of a finished run. Raises ValueError if something is left to do."""
    p = run.problem
    if (run.computed, run.gathered, run.reduced) != (len(p.segments), len(p.gathers), len(p.reductions)):
        raise ValueError("the plan leaves something out")
    return Outcome(tuple(run.actions), run.seconds, run.peak, run.excess)


def simulate(problem: SchedulingProblem, plan: Plan) -> Outcome:
    """Returns the outcome of a plan. Raises ValueError if it is none of this problem."""
    run = PlanRun(problem)
    for action in plan:
        if action.kind is ActionKind.COMPUTE:
            run.step()
        elif action.kind is ActionKind.GATHER:
            run.gather(action.end)
        else:
            if action.end > problem.made[run.computed]:
                raise ValueError("a reduction starts before its tensors are made")
            run.reduce(action.end)
    return outcome(run)
