"""A pipeline schedule: for each stage, the order of its work on micro-batches; its times, bubble and memory.

Layers are divided into `stages * parts` groups; group g is part g // stages of stage g % stages. Work on a micro-batch
is `F`, the forward pass of a group, `B`, the gradient of its input, and `W`, the gradient of its weights. Without `W`
in its orders a schedule computes both gradients in `B`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Literal, NamedTuple

from ...ir.checked_call import checked

Kind = Literal["F", "B", "W"]


class Work(NamedTuple):
    """One pass of a micro-batch through a part of a stage."""

    kind: Kind
    microbatch: int
    part: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.part}" if self.part else "")


Orders = Sequence[Sequence[Work]]


def _is_pass(work: object) -> bool:
    return isinstance(work, Work) and all(isinstance(number, Integral) for number in work[1:])


@dataclass(frozen=True)
class PassTimes:
    """The times of the passes of one micro-batch through all parts of a stage, in any unit."""

    forward: float = 1.0
    inputs: float = 1.0
    weights: float = 1.0


@dataclass(frozen=True)
class PipelineTimes:
    """When all work begins and ends. `held` counts, per stage, the micro-batches whose input of the stage is kept at
    the same time, at most; a part counts as its share of a stage.
    """

    starts: tuple[tuple[float, ...], ...]
    total: float
    busy: float
    held: tuple[float, ...]

    @property
    def ideal(self) -> float:
        """The time without a bubble: the mean of the stages' work."""
        return self.busy / len(self.starts)

    @property
    def bubble(self) -> float:
        """The share of time in which stages wait."""
        return 1 - self.ideal / self.total


@checked
class PipelineSchedule:
    """The orders of work of all stages.

    Raises ValueError if a pass is missing, twice, or waits for itself, and TypeError for anything but `Work`.
    """

    def __init__(self, orders: Orders, name: str = "own") -> None:
        self.name = name
        self.orders = tuple(tuple(order) for order in orders)
        self.stages = len(self.orders)
        work = [w for order in self.orders for w in order]
        if others := [w for w in work if not _is_pass(w)]:
            raise TypeError(f"a pass must be Work(kind, microbatch, part) with whole numbers, found {others[0]!r}")
        if not work:
            raise ValueError("a pipeline needs stages with work")
        self.microbatches = 1 + max(w.microbatch for w in work)
        self.parts = 1 + max(w.part for w in work)
        self.has_weights_apart = any(w.kind == "W" for w in work)
        self._check()

    def _check(self) -> None:
        kinds: tuple[Kind, ...] = ("B", "F", "W") if self.has_weights_apart else ("B", "F")
        for stage, order in enumerate(self.orders):
            done = set(order)
            if len(done) < len(order):
                twice = next(w for n, w in enumerate(order) if w in order[:n])
                raise ValueError(f"stage {stage} does {twice} twice")
            # Numbers may be far apart: the first gap comes after at most as many passes as the order has.
            needed = (Work(k, m, p) for k in kinds for m in range(self.microbatches) for p in range(self.parts))
            if missing := next((w for w in needed if w not in done), None):
                raise ValueError(f"stage {stage} does not do {missing}")
            if unknown := sorted(w for w in done if w.kind not in kinds or min(w.microbatch, w.part) < 0):
                raise ValueError(f"stage {stage} does {unknown[0]}, which is no pass of this pipeline")
        self.ticks  # noqa: B018  # raises for circles

    @cached_property
    def ticks(self) -> PipelineTimes:
        """The times if every pass takes one tick and results arrive at the next tick."""
        return self._timed(lambda _: 1.0)

    def times(self, passes: PassTimes | None = None) -> PipelineTimes:
        """The times if communication takes none."""
        passes = passes or PassTimes()
        backward = passes.inputs + (0.0 if self.has_weights_apart else passes.weights)
        of_kind = {"F": passes.forward, "B": backward, "W": passes.weights}
        return self._timed(lambda work: of_kind[work.kind] / self.parts)

    def source(self, stage: int, work: Work) -> tuple[int, Work] | None:
        """Returns the stage and the pass that send a pass its input; None if no stage does: it takes an input of the
        pipeline, the loss, or a value of its own stage.
        """
        group = work.part * self.stages + stage
        other = group + {"F": -1, "B": 1, "W": 0}[work.kind]
        if work.kind == "W" or not 0 <= other < self.stages * self.parts:
            return None
        return other % self.stages, Work(work.kind, work.microbatch, other // self.stages)

    def _needed(self, stage: int, work: Work) -> list[tuple[int, Work]]:
        before: dict[Kind, Kind] = {"B": "F", "W": "B"}
        own = [(stage, work._replace(kind=before[work.kind]))] if work.kind in before else []
        source = self.source(stage, work)
        return own if source is None else [*own, source]

    def _timed(self, duration: Callable[[Work], float]) -> PipelineTimes:
        ends: dict[tuple[int, Work], float] = {}
        starts: list[list[float]] = [[] for _ in self.orders]
        free, moved = [0.0] * self.stages, True
        while moved:
            moved = False
            for stage, order in enumerate(self.orders):
                for work in order[len(starts[stage]) :]:
                    needed = [ends.get(other) for other in self._needed(stage, work)]
                    if None in needed:
                        break
                    starts[stage].append(max([free[stage], *(end for end in needed if end is not None)]))
                    free[stage] = ends[stage, work] = starts[stage][-1] + duration(work)
                    moved = True
        for stage, order in enumerate(self.orders):
            if len(starts[stage]) < len(order):
                work = order[len(starts[stage])]
                waits = next(o for o in self._needed(stage, work) if o not in ends)
                raise ValueError(f"{work} of stage {stage} never begins: it waits for {waits[1]} of stage {waits[0]}")
        busy = sum(duration(work) for order in self.orders for work in order)
        held = tuple(self._held(stage, ends, starts[stage]) for stage in range(self.stages))
        return PipelineTimes(tuple(map(tuple, starts)), max(free), busy, held)

    def _held(self, stage: int, ends: dict[tuple[int, Work], float], starts: Sequence[float]) -> float:
        last: Kind = "W" if self.has_weights_apart else "B"
        changes = [(start, 1) for start, w in zip(starts, self.orders[stage], strict=True) if w.kind == "F"]
        changes += [(ends[stage, w], -1) for w in self.orders[stage] if w.kind == last]
        count = most = 0
        for _, change in sorted(changes):
            count += change
            most = max(most, count)
        return most / self.parts

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        times = self.times()
        text = f"{self.name}: {self.stages} stages, {self.microbatches} micro-batches"
        text += f", {self.parts} parts per stage" if self.parts > 1 else ""
        held = max(times.held)
        return f"{text}; bubble {times.bubble:.1%}, {times.total:g} of {times.ideal:g}; holds {held:g} micro-batches"

    def placed(self) -> Iterator[tuple[int, Work, float]]:
        """Yields each stage and pass with its tick."""
        for stage, (order, starts) in enumerate(zip(self.orders, self.ticks.starts, strict=True)):
            for work, at in zip(order, starts, strict=True):
                yield stage, work, at

    def table(self) -> str:
        """Returns a picture: one line per stage, one column per tick."""
        cells = {(stage, int(at)): str(work) for stage, work, at in self.placed()}
        width = max(map(len, cells.values()))
        columns = range(int(self.ticks.total))
        rows = ([cells.get((s, c), "").ljust(width) for c in columns] for s in range(self.stages))
        return "\n".join(" ".join(row).rstrip() for row in rows)
