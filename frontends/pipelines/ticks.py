"""Tables that say what each stage does at each tick, for a program that is the same on all stages.

A pass that ends in one tick sends its result to the next or the previous stage, where it arrives at the following tick
and takes a slot of a buffer until the last pass that needs it. Slots are shared by values that are not kept at the same
time: the left-edge algorithm (Hashimoto and Stevens, 1971), so there are as few as possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .schedule import PipelineSchedule, Work

Numbers = np.ndarray[Any, np.dtype[np.int32]]
IDLE = "idle"


@dataclass(frozen=True)
class TickTable:
    """Arrays [ticks, stages]. `action` indexes `actions`: `idle`, or the kind of a pass, followed by `last` if the loss
    comes next. `input` and `gradient` are the slots that a pass reads, `input_arrives` and `gradient_arrives` those
    that are written before it; one beyond the last slot if nothing is read or arrives.
    """

    actions: tuple[str, ...]
    inputs: int
    gradients: int
    action: Numbers
    microbatch: Numbers
    part: Numbers
    is_first: Numbers
    input: Numbers
    gradient: Numbers
    input_arrives: Numbers
    gradient_arrives: Numbers

    @property
    def rows(self) -> dict[str, Numbers]:
        """The arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class _Kept:
    """A value that a stage keeps from one tick to another."""

    stage: int
    arrives: int
    uses: tuple[int, ...]


def tick_table(schedule: PipelineSchedule) -> TickTable:
    """Returns the table of a schedule. A forward pass that only the loss follows is idle: the backward pass has it."""
    at = {(stage, work): int(tick) for stage, work, tick in schedule.placed()}
    last = schedule.stages * schedule.parts - 1
    shape = (int(schedule.ticks.total), schedule.stages)
    names: dict[tuple[int, int], str] = {}
    for (stage, work), tick in at.items():
        is_last = work.part * schedule.stages + stage == last
        names[tick, stage] = work.kind + (" last" if is_last else "")
    names = {place: name for place, name in names.items() if name != "F last"}
    actions = (IDLE, *sorted(set(names.values())))
    found = {name: np.zeros(shape, np.int32) for name in ("action", "microbatch", "part", "is_first")}
    for place, name in names.items():
        found["action"][place] = actions.index(name)
    for (stage, work), tick in at.items():
        found["microbatch"][tick, stage], found["part"][tick, stage] = work.microbatch, work.part
        found["is_first"][tick, stage] = stage == work.part == 0
    inputs, gradients = (_kept(schedule, at, kind) for kind in ("F", "B"))
    count, found["input"], found["input_arrives"] = _slots(inputs, shape)
    waiting, found["gradient"], found["gradient_arrives"] = _slots(gradients, shape)
    return TickTable(actions, count, waiting, **found)


def _kept(schedule: PipelineSchedule, at: dict[tuple[int, Work], int], kind: str) -> list[_Kept]:
    """The results of passes of one kind that arrive at a stage, and when its passes need them."""
    found: list[_Kept] = []
    for stage, work in at:
        source = schedule.source(stage, work) if work.kind == kind else None
        if source is not None:
            users = [work, *(work._replace(kind=k) for k in ("B", "W") if k != kind)]
            uses = tuple(at[stage, w] for w in users if (stage, w) in at)
            found.append(_Kept(stage, at[source] + 1, uses))
    return found


def _slots(values: list[_Kept], shape: tuple[int, int]) -> tuple[int, Numbers, Numbers]:
    free: dict[int, list[int]] = {}  # by stage: the tick at which each slot was needed last
    placed: list[tuple[_Kept, int]] = []
    for value in sorted(values, key=lambda v: v.arrives):
        slots = free.setdefault(value.stage, [])
        slot = next((n for n, until in enumerate(slots) if until < value.arrives), len(slots))
        slots[slot : slot + 1] = [max(value.uses)]
        placed.append((value, slot))
    count = max(map(len, free.values()), default=0)
    read, written = np.full(shape, count, np.int32), np.full(shape, count, np.int32)
    for value, slot in placed:
        written[value.arrives, value.stage] = slot
        for tick in value.uses:
            read[tick, value.stage] = slot
    return count, read, written
