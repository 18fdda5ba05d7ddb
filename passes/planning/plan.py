"""Plans the sharding of a program: the integer program proposes, the forecast of the scheduled program decides.

Candidates are the proposals of all meshes, and always: all weights whole (data parallel), all weights divided (fully
sharded), and the program as its own annotations have it. So a plan is never worse than these, as far as the forecast
tells.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...cost.machine import Machine
from ...cost.presets import as_machine
from ...ir.brief import brief
from ...ir.checked_call import checked
from ...ir.diagnostics import fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.module import Module, Stage
from ...ir.in_notebooks import InNotebooks
from ...ir.sharding.mesh import AxisRef, Mesh
from ..base import PassContext
from ..op_sharding.divisions import Divisions
from ..resharding.table import WHOLE, Division
from .classes import Classes
from .clusters import Clusters
from .fewest import FewSettings, fewest
from .judge import Judged, judge
from .kept import Kept, kept_in
from .meshes import annotated_mesh, meshes_of
from .model import Choice, Model
from .prepared import prepared
from .program import Costs, PlanValue, solve, solver
from .search import search
from .written import annotated

_MOST = 6  # proposals that are judged
_SOLVING = 0.5  # share of the time for the solver
_FEW = 3  # candidates that are judged whatever time it takes


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A sharding of the program: who proposed it, on which mesh, as an annotated program, and its forecast. `value` is
    its value in the model and `choice` its choice, if it comes from the model. A candidate called `.., inside free` has
    annotations of parameters and results alone.
    """

    name: str
    mesh: Mesh
    module: Module = field(repr=False)
    judged: Judged
    value: PlanValue | None = None
    choice: Choice | None = field(default=None, repr=False)

    @property
    def rank(self) -> tuple[bool, float, int]:
        return not self.judged.fits, self.judged.seconds, self.judged.peak


@dataclass(frozen=True, slots=True)
class Regret:
    """A parameter's sharding against its best other one, all else equal: the seconds that the model adds."""

    parameter: str
    chosen: str
    other: str
    seconds: float


@brief
@dataclass(frozen=True)
class Plan(InNotebooks):
    """The answer: the `candidates`, fastest first, and the annotated program of the first (`module`).

    `bound` are the seconds that no plan of the model goes below on this mesh, 0 if none is known. `spent` are the
    seconds that planning took.
    """

    candidates: tuple[PlanCandidate, ...]
    regrets: tuple[Regret, ...]
    bound: float
    spent: float
    source: Module = field(repr=False)
    context: PassContext = field(repr=False)
    memory: int = 0

    def strategy(self, seconds: float = 60.0) -> FewSettings:
        """Returns the fewest annotations that reproduce the plan, as a strategy for the program that was given."""
        with paused_collector():
            return fewest(
                self.source, self.module, self.mesh, self.best.judged,
                lambda module: judge(module, self.context, self.mesh.size, self.memory), seconds,
            )  # fmt: skip

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
        return self.best.judged.seconds

    @property
    def peak(self) -> int:
        """The largest number of bytes on a device."""
        return self.best.judged.peak

    @property
    def gap(self) -> float | None:
        """The share by which the best proposal of the model may exceed the bound; None without one."""
        values = [c.value.seconds for c in self.candidates if c.value is not None and c.mesh == self.mesh]
        return max(min(values) / self.bound - 1.0, 0.0) if values and self.bound else None


@checked
def plan(
    module: Module, machine: Machine | str, *, mesh: Mapping[str, int] | str | None = None, devices: int | None = None,
    memory: int = 0, keep: Sequence[str] = (), seconds: float = 60.0,
) -> Plan:
    """Returns the sharding of a GLOBAL module that takes the least time on a machine; the module is left as it is.

    `mesh` gives the sizes of its axes, as a mapping or as text (`8x16`, `data=8,model=16`); `all` tries all meshes of
    two dimensions for this many `devices`. By default it is the mesh of the program, or one axis of all devices. The
    program takes at most `memory` bytes of a device (0: those of the machine). `keep` lists shardings of parameters
    that must stay: patterns (`w*`) of annotated ones, or settings (`batch=data,`). Planning takes about this many
    `seconds`, more if a single forecast does.

    Raises CompileError if there is no solver (`pip install 'hloom[plan]'`), for constraints that cannot be met, and if
    nothing fits into memory.
    """
    solver()
    if module.stage is not Stage.GLOBAL:
        fail(f"a plan is of a program that is not sharded yet, {module.name} is {module.stage.value}")
    with paused_collector():
        return _Planning(module, as_machine(machine), memory, seconds).run(meshes_of(mesh, devices, module), keep)


class _Planning:
    def __init__(self, module: Module, machine: Machine, memory: int, seconds: float) -> None:
        self.module, self.machine, self.memory, self.seconds = module, machine, memory, seconds
        self.begun = time.monotonic()
        self.candidates: list[PlanCandidate] = []

    def run(self, meshes: Sequence[Mesh], keep: Sequence[str]) -> Plan:
        context = PassContext(machine=self.machine.of_devices(meshes[0].size))
        clusters = Clusters(prepared(self.module), context.forms)
        tried = [_OnMesh(clusters, context, mesh, kept_in(self.module, keep, mesh), self.limit) for mesh in meshes]
        share = self.seconds * _SOLVING / len(tried)
        for one in tried:
            one.search(share)
        self._judge(tried, context, bool(keep))
        if not self.candidates:
            fail(f"no sharding of {self.module.name} is found in {self.seconds:g} seconds")
        ranked = sorted(self.candidates, key=lambda c: c.rank)
        if not ranked[0].judged.fits:
            fail(f"no sharding of {self.module.name} fits: {ranked[0].judged.error}",
                 help="the least that a candidate takes is shown; more devices divide it further")
        on = next(one for one in tried if one.mesh.size == ranked[0].mesh.size)
        on = next((one for one in tried if one.mesh == ranked[0].mesh), on)
        return Plan(
            tuple(ranked), tuple(on.regrets(ranked[0].choice)), on.bound, time.monotonic() - self.begun, self.module,
            context, self.memory,
        )  # fmt: skip

    @property
    def limit(self) -> float:
        return float(self.memory) if self.memory else self.machine.capacity

    def _judge(self, tried: Sequence[_OnMesh], context: PassContext, is_bound: bool) -> None:
        """Judges the candidates, in turns of all meshes with the best of the model first, while there is time."""
        own = annotated_mesh(self.module)
        if not is_bound and own is not None and own.size == tried[0].mesh.size:
            self._add("as annotated", own, self.module, None, context)
        ordered = sorted(tried, key=lambda one: one.least)
        presets = [(one, found) for one in ordered[:1] for found in one.presets()]
        turns = [(one, one.proposals[n]) for n in range(_MOST) for one in ordered if n < len(one.proposals)]
        rest = turns[1 : _MOST + len(tried)]
        queue = [
            *((found, True) for found in turns[:1]), *((found, False) for found in (*presets, *turns[:1])),
            *((found, True) for found in (*presets, *rest)), *((found, False) for found in rest),
        ]  # fmt: skip
        for number, ((one, (name, choice, value)), inner) in enumerate(queue):
            if number >= _FEW and time.monotonic() - self.begun > self.seconds:
                return
            module = annotated(one.model, choice, one.mesh, inner)
            self._add(name if inner else f"{name}, inside free", one.mesh, module, value, context, choice)

    def _add(
        self, name: str, mesh: Mesh, module: Module, value: PlanValue | None, context: PassContext,
        choice: Choice | None = None,
    ) -> None:  # fmt: skip
        judged = judge(module, context, mesh.size, self.memory)
        self.candidates.append(PlanCandidate(name, mesh, module, judged, value, choice))


Named = tuple[str, Choice, PlanValue]


class _OnMesh:
    """The planning of a program on one mesh."""

    def __init__(
        self, clusters: Clusters, context: PassContext, mesh: Mesh, kept: Sequence[Kept], limit: float
    ) -> None:
        self.mesh, self.limit = mesh, limit
        parameters = clusters.module.entry.parameters
        fixed = {clusters.graph.leaves[parameters[k.parameter]][0]: k.division for k in kept}
        axes = [mesh.digits(AxisRef(name)) for name, _ in mesh.axes]
        classes = Classes(clusters, context.machine, fixed)
        self.model = Model(classes, Divisions(context.decider(mesh.size), axes))
        self.costs = Costs(self.model)
        self.proposals: list[Named] = []
        self.bound = 0.0

    def search(self, seconds: float) -> None:
        found = search(self.costs, self.limit, seconds)
        least = sum(float(c.computing.min()) for c in self.model.classes)
        self.bound = max(found.bound, least)
        self.proposals = [(p.stage, p.choice, p.value) for p in found.proposals]

    @property
    def least(self) -> float:
        return min((value.seconds for _, _, value in self.proposals), default=math.inf)

    def presets(self) -> Iterator[Named]:
        """Yields the best choices with all weights whole, and with all divided by all axes together."""
        clusters, classes = self.model.of.clusters, self.model.classes
        weights = {self.model.of.of[clusters.home[leaf][0].number] for leaf in clusters.renewed.values()}
        if not weights:
            return
        for name, divides in (("all data parallel", False), ("all sharded", True)):
            allowed: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
            for number, of_class in enumerate(classes):
                rows = range(len(of_class.rows))
                alike = [r for r in rows if len(set(of_class.division(r))) == 1]
                if number in weights:
                    wanted = [r for r in alike if (of_class.division(r)[0] != WHOLE) is divides]
                    alike = wanted or alike
                allowed[number] = np.array(alike or list(rows))
            choice = solve(self.costs, allowed, seconds=max(1.0, 10.0)).choice
            if choice is not None:
                yield name, choice, self.costs.value(choice)

    def regrets(self, choice: Choice | None) -> Iterator[Regret]:
        """Yields the price of each sharding of a parameter against its best other one, highest first."""
        if choice is None:
            return
        base, found = self.costs.value(choice), list[Regret]()
        for parameter in self.model.of.clusters.module.entry.parameters:
            leaf = self.model.of.clusters.graph.leaves[parameter][0]
            number = self.model.of.of[self.model.of.clusters.home[leaf][0].number]
            of_class = self.model.classes[number]
            if of_class.example.leaf is not leaf or len(of_class.rows) < 2:
                continue
            rows = (row for row in range(len(of_class.rows)) if row != choice[number])
            value, row = min(((self.costs.value({**choice, number: r}), r) for r in rows), key=lambda o: o[0].objective)
            chosen, other = (self._text(of_class.division(r), leaf.shape.rank) for r in (choice[number], row))
            found.append(Regret(parameter.name, chosen, other, value.objective - base.objective))
        yield from sorted(found, key=lambda r: -r.seconds)

    def _text(self, division: Division, rank: int) -> str:
        return division_text(division, rank, self.mesh)


def division_text(division: Division, rank: int, mesh: Mesh) -> str:
    """Returns a division as a strategy file writes it: `data+model,`."""
    dims = ["+".join(n for (n, _), place in zip(mesh.axes, division) if place == dim) for dim in range(rank)]
    return (dims[0] or "-") if rank == 1 else ",".join(dims)
