"""Bubbles of pipelines: the time in which stages have nothing to do when a pipeline begins and ends.

A loop is taken to be a pipeline if its body sends a part of its state to the next of S devices, around or along, and
it has more than S trips. T trips then serve T - S + 1 micro-batches, or as many parts of them in a circular pipeline,
and each device computes S - 1 trips for nothing (Huang et al., GPipe, 2019; Xu et al., GSPMD, 2021, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.analysis.buffers import body_of
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.ops.collectives import Pairs, pairs_of
from .runs import runs
from .seconds import Clock, Seconds, trips_of


@dataclass(frozen=True, slots=True)
class Bubble:
    """A pipeline: its loop, its stages and trips, and the seconds that a device computes for nothing in all runs."""

    loop: Instruction
    stages: int
    trips: int
    seconds: Seconds

    @property
    def share(self) -> float:
        """The share of the loop's computation."""
        return (self.stages - 1) / self.trips


def bubbles(module: Module, clock: Clock) -> list[Bubble]:
    """Returns the pipelines of a per-device program."""
    found: list[Bubble] = []
    for run in runs(module, having=lambda op: op.role is Role.LOOP):
        loop = run.instruction
        stages, trips = max(_stages(loop, body_of(loop)), default=1), trips_of(loop)
        if 1 < stages < trips:
            one, idle = clock.serial(body_of(loop)), (stages - 1) * run.count
            found.append(Bubble(loop, stages, trips, Seconds(0.0, idle * one.memory, idle * one.work,
                                                             idle * one.launches)))  # fmt: skip
    return found


def _stages(loop: Instruction, body: Computation) -> Iterator[int]:
    """Yields the devices to whose next one the body of a loop sends values that are shaped like parts of its state."""
    state = {leaf.without_layout() for leaf in loop.shape.leaves()}
    for instruction in body:
        pairs = pairs_of(instruction)
        if pairs and instruction.operands and instruction.operands[0].shape.without_layout() in state:
            yield _length(pairs)


def _length(pairs: Pairs) -> int:
    """Returns the devices of the longest chain of pairs, or of the longest ring."""
    following = dict(pairs)
    longest, known = 1, set[int]()
    for start in sorted(set(following) - set(following.values()) or following):
        if start in known:
            continue
        seen = {start}
        at = following.get(start)
        while at is not None and at not in seen:
            seen.add(at)
            at = following.get(at)
        known |= seen
        longest = max(longest, len(seen))
    return longest
