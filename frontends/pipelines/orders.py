"""The schedules of the literature.

`gpipe`: all forward passes, then all backward ones (Huang et al., 2019). `1f1b`: as many forward passes as stages
follow, then one forward and one backward pass in turn (PipeDream-Flush, Narayanan et al., 2021). `circular`: gpipe
where each stage has several parts of the layers (GSPMD, 3.3). `interleaved`: 1f1b with several parts (Megatron-LM,
Narayanan et al., 2021). `zb-h1`: 1f1b where the gradients of weights fill the bubble, in the memory of 1f1b (Zero
Bubble Pipeline Parallelism, Qi et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.checked_call import checked
from .schedule import Kind, PipelineSchedule, Work

Orders = list[list[Work]]
BOTH: tuple[Kind, Kind] = ("F", "B")


@checked
def pipeline_schedule(name: str, stages: int, microbatches: int, parts: int = 1) -> PipelineSchedule:
    """Returns a schedule by name: `gpipe`, `circular`, `1f1b`, `interleaved` or `zb-h1`.

    Raises ValueError for another name, for several parts where a schedule has one, and if micro-batches are no multiple
    of the stages where several parts take turns.
    """
    if name not in _SCHEDULES:
        raise ValueError(f"unknown pipeline schedule {name!r}: {', '.join(_SCHEDULES)}")
    if min(stages, microbatches, parts) < 1:
        raise ValueError("a pipeline needs stages, micro-batches and parts")
    if parts > 1 and name not in ("circular", "interleaved"):
        raise ValueError(f"{name} has one part per stage; circular and interleaved have several")
    if parts > 1 and microbatches % stages:
        raise ValueError(f"{name} takes micro-batches by rounds of {stages} stages, {microbatches} are no multiple")
    return PipelineSchedule(_SCHEDULES[name](stages, microbatches, parts), name)


def _virtual(kind: Kind, stages: int, microbatches: int, parts: int) -> list[Work]:
    """The passes of one kind on a stage: a round of micro-batches through each part, then the next round."""
    rounds = range(0, microbatches, stages if parts > 1 else microbatches)
    size = stages if parts > 1 else microbatches
    order = range(parts) if kind == "F" else range(parts - 1, -1, -1)
    return [Work(kind, first + m, part) for first in rounds for part in order for m in range(size)]


def _all_forward(stages: int, microbatches: int, parts: int) -> Orders:
    forward, backward = (_virtual(kind, stages, microbatches, parts) for kind in BOTH)
    return [[*forward, *backward] for _ in range(stages)]


def _one_by_one(stages: int, microbatches: int, parts: int) -> Orders:
    forward, backward = (_virtual(kind, stages, microbatches, parts) for kind in BOTH)
    orders: Orders = []
    for stage in range(stages):
        later = stages - 1 - stage
        first = min(len(forward), later if parts == 1 else 2 * later + (parts - 1) * stages)
        both = [w for pair in zip(forward[first:], backward, strict=False) for w in pair]
        orders.append([*forward[:first], *both, *backward[len(forward) - first :]])
    return orders


def _zero_bubble(stages: int, microbatches: int, parts: int) -> Orders:
    """1f1b, where stage s computes gradients of weights s micro-batches after those of inputs: so all stages hold as
    many micro-batches as the first one, and later stages fill the end.
    """
    orders: Orders = []
    for stage, order in enumerate(_one_by_one(stages, microbatches, parts)):
        apart: list[Work] = []
        for work in order:
            apart.append(work)
            if work.kind == "B" and work.microbatch >= stage:
                apart.append(Work("W", work.microbatch - stage))
        orders.append([*apart, *(Work("W", m) for m in range(max(0, microbatches - stage), microbatches))])
    return orders


_SCHEDULES: dict[str, Callable[[int, int, int], Orders]] = {
    "gpipe": _all_forward,
    "circular": _all_forward,
    "1f1b": _one_by_one,
    "interleaved": _one_by_one,
    "zb-h1": _zero_bubble,
}
