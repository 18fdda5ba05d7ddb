"""Plans the sharding of a program: the integer program proposes, the forecast of the scheduled program decides.

Of several meshes a glance at each finds the promising ones. Candidates are the proposals on these, and always: all
weights whole (data parallel) and all weights divided (fully sharded), both by the model and as people write them
(`by_hand`), and the program as its own annotations have it. So a plan is never worse than these, as far as the forecast
tells. All of the model are of the program that saves as much for later loops as is best (`prepared`).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ...cost.machine import Machine
from ...cost.presets import as_machine
from ...cost.seconds import Clock
from ...cost.sizes import sized
from ...ir.brief import brief
from ...ir.checked_call import checked
from ...ir.diagnostics import Diagnostic, Severity, fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.module import Module
from ...ir.in_notebooks import InNotebooks
from ...ir.sharding.mesh import Mesh
from ...ir.tools.spmd import require_undivided
from ..base import AsRun, PassContext
from ..schedule.does_not_fit import DoesNotFit
from .batch_parts import in_parts
from .by_hand import batch_of, by_hand, judged_by_hand
from .classes import KnownClasses
from .few_choices import best_of_few, has_few_choices
from .fewest import FewSettings, fewest
from .judge import judge
from .kept import Kept, kept_in
from .meshes import annotated_mesh, meshes_of
from .near import near, nearer
from .on_mesh import MeshPlan, PlanCandidate, Regret
from .pareto import frontier
from .prepared import prepared
from .program import solver
from .short_programs import ShortPrograms
from .time_left import TimeLeft
from .trials import PlanTrials
from .turns import Proposed
from .what_if import WhatIf, what_if

_SOLVING = 0.5  # share of the time for the solver
_EARLY = 0.5  # share of that, until which more than one mesh is searched
_LATER, _MOMENT = 0.3, 1.0  # share of the time, and seconds, that forecasts of shardings by hand may begin later
_WORTH = 0.02  # of the price or the time of the best mesh: others that are not further behind may become better
_FULL = 0.9  # share of a limit from which on it binds


@brief
@dataclass(frozen=True)
class Plan(InNotebooks):
    """The answer: the `candidates`, fastest first, and the annotated program of the first (`module`).

    `bound` are the seconds that no plan of the model goes below on this mesh, 0 if none is known. `spent` are the
    seconds that planning took. `recomputed` are the bytes, of all devices, that loops of the annotated program save
    less for one another than those of the program that was given. `kept` are the numbers of the parameters whose
    shardings were given.
    """

    candidates: tuple[PlanCandidate, ...]
    regrets: tuple[Regret, ...]
    bound: float
    spent: float
    source: Module = field(repr=False)
    context: PassContext = field(repr=False)
    machine: Machine = field(repr=False)
    on: MeshPlan = field(repr=False)
    memory: int = 0
    recomputed: int = 0
    kept: frozenset[int] = frozenset()

    def strategy(self, seconds: float = 60.0) -> FewSettings:
        """Returns the fewest annotations that reproduce the plan, as a strategy for the program that was given."""
        with paused_collector():
            return fewest(
                self.source, self.module, self.mesh, self.best.judged,
                lambda module, left: judge(
                    module, self.context, self.mesh.size, self.memory, parts=self.best.parts, left=left),
                self.context, seconds, self.kept,
            )  # fmt: skip

    def pareto(self, count: int = 5, seconds: float = 60.0) -> list[PlanCandidate]:
        """Returns this plan, its candidates that take less memory, and plans on the same mesh for ever less, fastest
        first: none is slower and larger than another. The limits, `count` with this plan's memory, begin with the least
        that is found, and end when about this many seconds are over.
        """
        with paused_collector():
            return frontier(self.on, self.candidates, self.context, count, seconds)

    def what_if(self, seconds: float = 20.0) -> list[WhatIf]:
        """Returns the time by the model, relative to this plan's, with more or less memory, faster links and more
        devices: those that are found in about this many seconds.
        """
        with paused_collector():
            return what_if(self.on, self.context, self.machine, seconds)

    @property
    def limits(self) -> str:
        """Names the limit of a step: `memory` if the plan fills nearly all that it may; else `communication` if the
        busiest engine runs nearly always; else `computation`, or both if computation often waits.
        """
        judged = self.best.judged
        if judged.peak > _FULL * self.on.limit:
            return "memory"
        if judged.busy > _FULL * judged.seconds:
            return "communication"
        return "computation" if judged.computing > _FULL * judged.seconds else "computation and communication"

    @property
    def best(self) -> PlanCandidate:
        """The fastest candidate."""
        return self.candidates[0]

    @property
    def module(self) -> Module:
        """The program with the annotations of the best candidate."""
        return self.best.module

    @property
    def mesh(self) -> Mesh:
        """The mesh of the best candidate."""
        return self.best.mesh

    @property
    def seconds(self) -> float:
        """The forecast of a step."""
        return self.best.seconds

    @property
    def peak(self) -> int:
        """The largest number of bytes on a device."""
        return self.best.peak

    @property
    def gap(self) -> float | None:
        """The share by which the best proposal of the model may exceed the bound; None without one."""
        return max(self.on.least / self.bound - 1.0, 0.0) if self.bound and self.on.least < math.inf else None


@checked
class PlanSearch:
    """Plans a GLOBAL module, which is left as it is, for a machine: in `memory` bytes of a device (0: those of the
    machine), and in about this many `seconds` from now on. Forecasts are of programs `as_run` (see `PassContext`). If
    `even`, parameters and results only have tiles of equal size.

    Raises CompileError for a program that is sharded already, and without a solver.
    """

    def __init__(
        self, module: Module, machine: Machine | str, memory: int = 0, seconds: float = 60.0,
        as_run: AsRun | None = None, even: bool = False,
    ) -> None:
        solver()
        require_undivided(module, "a plan")
        self.module, self.machine, self.memory, self.seconds = module, as_machine(machine), memory, seconds
        self.as_run, self.even = as_run, even
        self.begun = time.monotonic()
        self.left = TimeLeft(self.begun + seconds)
        self.candidates: list[PlanCandidate] = []
        self.short: ShortPrograms | None = None

    def run(self, mesh: Mapping[str, int] | str | None, devices: int | None, keep: Sequence[str]) -> Plan:
        """Returns the plan on the meshes that `mesh` and `devices` mean (see `meshes_of`), with the shardings that
        `keep` lists.

        Raises CompileError for constraints that cannot be met, and if nothing fits into memory.
        """
        with paused_collector():
            return self._found(meshes_of(mesh, devices, self.module), keep)

    def _found(self, meshes: Sequence[Mesh], keep: Sequence[str]) -> Plan:
        context = PassContext(machine=self.machine.of_devices(meshes[0].size), as_run=self.as_run)
        known, solving = KnownClasses(prepared(self.module), context.forms, self.even), self.left.share(_SOLVING)
        kept = [known.of(self.machine, m.size, self.limit, self._kept(keep, m)) for m in meshes]
        tried = [MeshPlan(classes, context, mesh, self.limit) for classes, mesh in zip(kept, meshes, strict=True)]
        tried = self._searched(tried, solving)
        trials = self._judge(tried, context, any("=" in said for said in keep))
        self._look_near(tried, context)
        more = list(trials.later(self.candidates, self.left))
        self.candidates += more
        if more and (fastest := min(self.candidates, key=_rank)) in more:
            self._look_near([one for one in tried if one.mesh == fastest.mesh], context)
        for one in tried:  # last: no search begins at them; late on the first mesh, and where forecasts take a moment
            if one is tried[0] or self.left.allows_first():
                self.candidates += self._by_hand(one, known, context, keep, one is tried[0])
        self.candidates += in_parts(self.candidates, context, self.memory, self.left)
        ranked = _named_apart(sorted(self.candidates, key=_rank))
        if not ranked[0].judged.fits:
            self._refuse(ranked)
        least = min(tried, key=lambda one: one.least)
        on = next((one for one in tried if one.mesh == ranked[0].mesh), least)
        return Plan(
            tuple(ranked), tuple(on.regrets(ranked[0].choice)), on.bound, time.monotonic() - self.begun, self.module,
            context, self.machine, on, self.memory, known.freed(on.model.of) if ranked[0].choice is not None else 0,
            frozenset(one.parameter for one in self._kept(keep, on.mesh)),
        )  # fmt: skip

    def _searched(self, meshes: Sequence[MeshPlan], left: TimeLeft) -> list[MeshPlan]:
        """Returns the meshes with proposals, that of the best price at a glance first: it is searched, and others while
        there is much time. Of the rest those that a glance prices nearly as the best one have one proposal.
        """
        prices, early = dict[MeshPlan, float](), left.share(_EARLY)
        for one in meshes if len(meshes) > 1 else ():
            if not prices or time.monotonic() < early.deadline:
                prices[one] = one.glance()
        ordered, found = sorted(prices, key=lambda one: prices[one]) or list(meshes), list[MeshPlan]()
        for one in ordered:
            if not found or time.monotonic() < early.deadline:
                one.search(left.deadline - time.monotonic())
                found.append(one)
            elif prices[one] <= prices[ordered[0]] * (1 + _WORTH):
                found.append(one)
        return found

    def _look_near(self, tried: Sequence[MeshPlan], context: PassContext) -> None:
        """Adds candidates next to the best ones of their meshes."""
        for one in self._near_best(tried) if self.candidates else ():
            if has_few_choices(one):
                self.candidates += best_of_few(one, self.candidates, context, self.memory, self.left)
            else:
                self.candidates += near(one, self.candidates, context, self.memory, self.left, self.short)
                self.candidates += nearer(one, self.candidates, context, self.memory, self.left)

    def _near_best(self, tried: Sequence[MeshPlan]) -> list[MeshPlan]:
        """Returns the meshes that have a candidate nearly as fast as the best one, the best one first."""
        ranked = sorted(self.candidates, key=_rank)
        most = ranked[0].judged.seconds * (1 + _WORTH)
        meshes = dict.fromkeys(c.mesh for c in ranked if c.rank == ranked[0].rank or c.judged.seconds <= most)
        return [one for mesh in meshes for one in tried if one.mesh == mesh]

    def _by_hand(
        self, on: MeshPlan, known: KnownClasses, context: PassContext, keep: Sequence[str], is_first: bool
    ) -> Iterator[PlanCandidate]:
        """Yields the usual shardings as annotations of parameters alone; if a plan is known, those for which there is
        time. The program without divisions is the same on all meshes, so the first has it.
        """
        best = min((candidate.judged.seconds for candidate in self.candidates), default=math.inf)
        latest = self.left.deadline + _LATER * self.seconds + _MOMENT if best < math.inf else math.inf
        if time.monotonic() > latest:
            return iter(())
        batch, mesh = batch_of(known.module, Clock(self.machine, 1)), on.mesh
        programs = by_hand(self.module, batch, mesh, self._kept(keep, mesh), self.even,
                           is_first and on.undivided < best)
        return judged_by_hand(programs, mesh, context, self.memory, best, self.left, latest)

    def _kept(self, keep: Sequence[str], mesh: Mesh) -> list[Kept]:
        return kept_in(self.module, keep, mesh, self.even)

    def _refuse(self, ranked: Sequence[PlanCandidate]) -> NoReturn:
        divided = [c for c in ranked if c.judged.peak]
        if not divided:
            fail(f"{self.module.name} cannot be planned: {ranked[0].judged.error}")
        least = min(divided, key=lambda c: c.judged.peak)
        text = (f"no sharding of {self.module.name} fits into {sized(self.limit)}: the least that is found takes "
                f"{sized(least.judged.peak)}, '{least.name}'")  # fmt: skip
        raise DoesNotFit(
            Diagnostic(Severity.ERROR, text, help=f"more devices divide it further; {least.judged.error}"),
            least.judged.peak,
        )

    @property
    def limit(self) -> float:
        return float(self.memory) if self.memory else self.machine.capacity

    def _judge(self, tried: Sequence[MeshPlan], context: PassContext, is_bound: bool) -> PlanTrials:
        """Judges the program as annotated, and proposals in turns of all meshes with the best of the model first."""
        own = annotated_mesh(self.module)
        if not is_bound and own is not None and own.size == tried[0].mesh.size:
            judged = judge(self.module, context, own.size, self.memory, left=self.left)
            self.candidates.append(PlanCandidate("as annotated", own, self.module, judged))
        presets = [(tried[0], found) for found in tried[0].presets()]
        most = max(len(one.proposals) for one in tried)
        turns = [(one, one.proposals[n]) for n in range(most) for one in tried if n < len(one.proposals)]
        self.short = ShortPrograms.of(tried[0].model.of.clusters.module)
        trials = PlanTrials(context, self.memory, self.left, self.short)

        def smaller(beyond: float) -> Iterator[Proposed]:
            seconds = max(self.left.deadline - time.monotonic(), 0.0) * _SOLVING
            return ((tried[0], named) for named in tried[0].smaller(beyond, seconds))

        trials.run([*turns[:1], *presets, *turns[1:]], smaller)
        self.candidates += trials.made
        self.left = trials.left
        return trials


def _rank(candidate: PlanCandidate) -> tuple[bool, float, int]:
    return candidate.rank


def _named_apart(candidates: Iterable[PlanCandidate]) -> list[PlanCandidate]:
    """Numbers candidates that have the name of one before."""
    seen, found = Counter[str](), list[PlanCandidate]()
    for one in candidates:
        seen[one.name] += 1
        found.append(one if seen[one.name] == 1 else replace(one, name=f"{one.name}, {seen[one.name]}"))
    return found
