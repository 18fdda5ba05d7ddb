"""Describes a plan for people: its forecast, how far it may be from the best, the alternatives, and regrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..cost.sizes import sized, timed
from ..ir.brief import brief
from ..ir.sharding.mesh import sizes_text
from ..passes.planning.fewest import FewSettings
from ..passes.planning.on_mesh import PlanCandidate
from ..passes.planning.plan import Plan
from ..passes.planning.what_if import WhatIf
from .columns import columns
from .memory import buffers_table

_BUFFERS = 8
_SHOWN = 12  # regrets
_FAR = 0.99  # of the bound of the model, below which a forecast is told to be less


def plan_text(plan: Plan, machine: str) -> str:
    """Returns a summary, a table of candidates, and one of parameters with the price of their next best sharding."""
    best, mesh = plan.best, sizes_text(dict(plan.mesh.axes))
    lines = [
        f"plan for {plan.mesh.size} device{'s' * (plan.mesh.size > 1)} of {machine}, mesh {mesh}: "
        f"{timed(plan.seconds)} a step, {timed(best.judged.exposed)} of it exposed, {sized(plan.peak)} on a device; "
        f"found in {plan.spent:.1f} s",
        _limits(plan), _bound(plan),
        *([f"the schedule computes the batch in parts: --split-batch {best.parts}"] if best.parts else []),
        *([f"loops save {sized(plan.recomputed // plan.mesh.size)} less on a device for later ones, which compute it "
           "again: in the annotated program, not in a strategy"] if plan.recomputed else []),
        "", _candidates(plan),
    ]  # fmt: skip
    return "\n".join([*lines, "", _regrets(plan)] if plan.regrets else lines)


def explanation_text(plan: Plan, changes: Sequence[WhatIf]) -> str:
    """Returns a table of the largest buffers at the peak, and one of the time with other hardware."""
    buffers = f"memory at {plan.best.judged.at}:\n{buffers_table(plan.best.judged.buffers, _BUFFERS)}"
    rows: list[tuple[str, ...]] = [("with", "time", "memory")]
    for one in changes:
        text = "does not fit" if not one.fits else f"{one.ratio:.3f}"
        rows.append((one.change, text, sized(round(one.memory))))
    return f"{buffers}\n\nby the model, against this plan:\n{columns(rows, [False, True, True])}"


def _limits(plan: Plan) -> str:
    judged = plan.best.judged
    verb = "limit" if " and " in plan.limits else "limits"
    text = (f"{plan.limits} {verb} the plan: computation takes {timed(judged.computing)}, the busiest engine of "
            f"collectives {timed(judged.busy)}")  # fmt: skip
    filled = judged.peak / plan.on.limit  # 0 without a limit
    return f"{text}, and {filled:.0%} of the memory is filled" if filled else text


def _bound(plan: Plan) -> str:
    value = plan.best.value
    if plan.bound and value is not None and value.memory > plan.on.limit:
        return (f"by the model this plan takes {timed(value.seconds)} and {sized(value.memory)}, more than it may, and "
                f"none that fits takes less than {timed(plan.bound)}; the schedule saves memory")  # fmt: skip
    if plan.gap is None:
        known = f"by the model none that fits takes less than {timed(plan.bound)}, and no proposal fits"
        return known if plan.bound else "no bound is known"
    text = f"by the model no plan takes less than {timed(plan.bound)}, and the best proposal {plan.gap:.1%} more"
    if value is None and plan.seconds < _FAR * plan.bound:
        return f"{text}; this plan is no proposal of the model, and its forecast is less"
    if value is None or not value.seconds:
        return text
    return f"{text}; the forecast of this plan is {plan.seconds / value.seconds:.2f} of the model's time"


def _candidates(plan: Plan) -> str:
    rows: list[tuple[str, ...]] = [("candidate", "mesh", "time", "exposed", "peak", "ratio", "model")]
    for candidate in plan.candidates:
        judged, value = candidate.judged, candidate.value
        model = timed(value.seconds) if value is not None else ""
        times = "does not fit", "", sized(judged.peak), ""
        if judged.fits:
            ratio = _share(judged.seconds, plan.seconds)
            times = timed(judged.seconds), timed(judged.exposed), sized(judged.peak), f"{ratio:.3f}"
        rows.append((candidate.name, _mesh(candidate), *times, model))
    return columns(rows, [False, False, True, True, True, True, True])


def frontier_text(frontier: Sequence[PlanCandidate]) -> str:
    """Returns a table of plans for ever less memory, fastest first."""
    first = frontier[0].judged
    rows: list[tuple[str, ...]] = [("time", "ratio", "exposed", "peak", "share", "mesh", "candidate")]
    for one in frontier:
        judged = one.judged
        rows.append((timed(judged.seconds), f"{_share(judged.seconds, first.seconds):.3f}", timed(judged.exposed),
                     sized(judged.peak), f"{_share(judged.peak, first.peak):.2f}", _mesh(one), one.name))  # fmt: skip
    table = columns(rows, [True, True, True, True, True, False, False])
    return table if len(frontier) > 1 else f"{table}\nno plan for less memory is found"


def _mesh(candidate: PlanCandidate) -> str:
    return "x".join(str(size) for _, size in candidate.mesh.axes)


def _share(part: float, whole: float) -> float:
    """Returns a ratio; of nothing, as the time of constants, all is the same."""
    return part / whole if whole else 1.0


def _settings(few: FewSettings, file: str) -> str:
    count = len(few.shardings)
    text = f"{file}: {count} annotation{'s' if count != 1 else ''}, with a forecast of {timed(few.judged.seconds)}"
    return text if few.reproduces else f"{text}, not that of the plan"


def _regrets(plan: Plan) -> str:
    rows = [("parameter", "sharding", "next best", "adds")]
    rows += [(r.parameter, r.chosen, r.other, timed(r.seconds)) for r in plan.regrets[:_SHOWN]]
    return columns(rows, [False, False, False, True])


@brief
@dataclass
class PlanReport:
    """The plan of the program `name` for a machine; where they are known, also its fewest settings, plans for ever less
    memory, and its time with other hardware.
    """

    name: str
    machine: str
    plan: Plan
    strategy: FewSettings | None = None
    frontier: Sequence[PlanCandidate] | None = None
    changes: Sequence[WhatIf] | None = None

    def text(self, strategy_file: str = "the strategy") -> str:
        """Returns the plan for people."""
        texts = [f"{self.name}: {plan_text(self.plan, self.machine or 'the default machine')}"]
        if self.frontier is not None:
            texts.append(frontier_text(self.frontier))
        if self.changes is not None:
            texts.append(explanation_text(self.plan, self.changes))
        if self.strategy is not None:
            texts.append(_settings(self.strategy, strategy_file))
        return "\n\n".join(texts)

    def record(self) -> dict[str, object]:
        """Returns the plan as JSON."""
        found, judged, few = self.plan, self.plan.best.judged, self.strategy
        return {
            "program": self.name, "machine": self.machine, "mesh": dict(found.mesh.axes), "seconds": found.seconds,
            "peak": found.peak, "bound": found.bound, "gap": found.gap, "spent": found.spent,
            "recomputed": found.recomputed,
            "candidates": list(map(_candidate, found.candidates)), "regrets": [asdict(r) for r in found.regrets],
            "strategy": few and {"shardings": dict(few.shardings), "reproduces": few.reproduces, "alone": few.alone},
            "pareto": list(map(_candidate, self.frontier or ())), "limits": found.limits, "busy": judged.busy,
            "at": judged.at, "buffers": [asdict(b) for b in judged.buffers] if self.changes else [],
            "what_if": [asdict(change) for change in self.changes or ()],
        }  # fmt: skip


def _candidate(one: PlanCandidate) -> dict[str, object]:
    return {
        "name": one.name, "mesh": dict(one.mesh.axes), "fits": one.judged.fits,
        "seconds": one.judged.seconds if one.judged.fits else None, "exposed": one.judged.exposed,
        "peak": one.judged.peak, "model": one.value.seconds if one.value is not None else None, "parts": one.parts,
    }  # fmt: skip
