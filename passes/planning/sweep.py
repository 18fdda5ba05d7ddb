"""Compares meshes and machines for one program: the graph and its classes are found once, so that a mesh takes little.

For each mesh of each machine a search (`descent`) finds a choice in the model. The few that look best are partitioned
and scheduled, and the forecast ranks them. A mesh takes a fraction of a second, where a plan takes a minute. A part of
the time is kept for the forecasts, which share it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ...cost.machine import Machine
from ...cost.presets import as_machine, machine_name
from ...cost.sizes import sized
from ...ir.brief import brief
from ...ir.checked_call import checked
from ...ir.diagnostics import Diagnostic, Severity, fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.module import Module
from ...ir.sharding.digit import merge
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.tools.spmd import require_undivided
from ..base import AsRun, PassContext
from ..op_sharding.divisions import Divisions
from ..resharding.table import WHOLE
from ..schedule.does_not_fit import DoesNotFit
from .choice_costs import Assumed, ChoiceCosts, PlanValue
from .classes import Classes, KnownClasses
from .clusters import Clusters
from .descent import Axis, axes_of, quick
from .judge import Judged, judge
from .kept import Kept, kept_in
from .meshes import all_meshes, meshes_of
from .model import Choice, Model
from .moves import QuickTable
from .prepared import prepared
from .program import solve, solver
from .search import ASSUMED, by_axes
from .time_left import TimeLeft
from .usual import Usual
from .written import AnnotationWriter, Inside

_SECONDS = 2.0  # of an integer program on one axis
_LEARNING, _MOST_LEARNING = 0.15, 4.0  # the share of the time, and the seconds for a machine, to learn from two axes
_FORECASTS = 0.2  # the share of the time that is kept for them
_LEARNED = (Assumed(0.0, 8.0), Assumed(1.0, 1.0))


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A mesh of a machine. `value` is the value of its best choice in the model; `judged` is the forecast of the
    annotated `module`, for the few that were scheduled.
    """

    machine: str
    mesh: Mesh
    value: PlanValue
    fits: bool
    judged: Judged | None = None
    module: Module | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        """The forecast if there is one, else the time in the model."""
        return self.judged.seconds if self.judged is not None else self.value.seconds

    @property
    def may_run(self) -> bool:
        """Whether it fits by its forecast if there is one, else by the model."""
        return self.judged.fits if self.judged is not None else self.fits

    @property
    def peak(self) -> float:
        """The bytes of the forecast if there is one, else those of the model."""
        return self.judged.peak if self.judged is not None else self.value.memory

    @property
    def rank(self) -> tuple[bool, bool, float, float]:
        return not self.may_run, self.judged is None, self.seconds, self.value.memory


@brief
@dataclass(frozen=True)
class Sweep:
    """The points: first those with a forecast, then the others by their time in the model, last those that do not fit.
    `spent` are the seconds that it took, `left_out` the number of meshes for which the time was too short.
    """

    points: tuple[SweepPoint, ...]
    spent: float
    left_out: int = 0

    @property
    def best(self) -> SweepPoint:
        """The first point."""
        return self.points[0]


def _meaning(model: Model, choice: Choice) -> object:
    """Returns the digits of the device number that divide each class: those of another mesh may be the same."""
    found: list[object] = []
    for number, of_class in enumerate(model.classes):
        places = of_class.division(choice[number])
        digits = [(place, axis) for place, axis in zip(places, model.divisions.axes) if place != WHOLE]
        kept = dict.fromkeys(place for place, _ in digits)
        found.append(frozenset((place, merge(d for p, axis in digits if p == place for d in axis)) for place in kept))
    return tuple(found)


def _squareness(mesh: Mesh) -> tuple[int, int]:
    return min(size for _, size in mesh.axes), mesh.size


def _ends(meshes: Sequence[Mesh]) -> list[int]:
    """Returns the smallest and the largest size of the axes that divide anything."""
    sizes = sorted({size for mesh in meshes for _, size in mesh.axes if size > 1})
    return list(dict.fromkeys((sizes[0], sizes[-1]))) if sizes else []


def _name(machine: Machine | str) -> str:
    return machine if isinstance(machine, str) and machine else machine_name(as_machine(machine))


def _meshes(said: str, devices: Sequence[int], module: Module) -> list[Mesh]:
    if said == "all":
        counts = devices or [mesh.size for mesh in meshes_of(None, None, module)]
        return [mesh for count in counts for mesh in all_meshes(count)]
    return [mesh for one in said.split(";") for mesh in meshes_of(one, None, module)]


@checked
class Sweeping:
    """Compares meshes and machines for a GLOBAL module, which is left as it is: in `memory` bytes of a device (0: those
    of its machine), with the shardings that `keep` lists, and in about this many `seconds` from now on. Forecasts are
    of programs `as_run` (see `PassContext`). If `even`, parameters and results only have tiles of equal size.

    Raises CompileError for a program that is sharded already, without a machine, without a solver, and if nothing fits.
    """

    def __init__(
        self, module: Module, machines: Sequence[Machine | str], memory: int = 0, keep: Sequence[str] = (),
        seconds: float = 60.0, as_run: AsRun | None = None, even: bool = False,
    ) -> None:
        solver()
        require_undivided(module, "a sweep")
        if not machines:
            fail("a sweep needs a machine")
        self.module, self.memory, self.keep, self.seconds = module, memory, keep, seconds
        self.machines: Mapping[str, Machine] = {_name(one): as_machine(one) for one in machines}
        self.begun = time.monotonic()
        self.left = TimeLeft(self.begun + seconds)
        self.base, self.even = PassContext(as_run=as_run), even
        self.classes = KnownClasses(prepared(module), self.base.forms, even)
        self.idle = set[object]()  # divisions of calls without exchanges
        self.known: dict[Clusters, list[Axis]] = {}  # with a factor of each cluster

    def run(self, meshes: str, devices: Sequence[int], best: int) -> Sweep:
        """Returns the points of the meshes that are said: `all` of these `devices`, or meshes with `;` between. The
        `best` ones get a forecast.

        Raises CompileError for constraints that cannot be met.
        """
        with paused_collector():
            return self._compared(_meshes(meshes, devices, self.module), best)

    def _compared(self, meshes: Sequence[Mesh], best: int) -> Sweep:
        every = [(name, mesh) for mesh in meshes for name in self.machines]
        self._learn(meshes)
        points: list[tuple[SweepPoint, Model, Choice]] = []
        for name, mesh in every:
            if points and time.monotonic() > self.begun + self.seconds * (1 - _FORECASTS):
                break
            points.append(self._point(name, mesh))
        points.sort(key=lambda point: point[0].rank)
        ranked = sorted(self._judged(points, best), key=lambda point: point.rank)
        judged = [point.judged for point in ranked if point.judged is not None]
        if judged and not any(one.fits or one.peak for one in judged):
            fail(f"{self.module.name} cannot be divided: {judged[0].error}")
        if ranked and not ranked[0].may_run:
            self._refuse(ranked)
        return Sweep(tuple(ranked), time.monotonic() - self.begun, len(every) - len(points))

    def _refuse(self, points: Sequence[SweepPoint]) -> NoReturn:
        least = min(points, key=lambda point: point.peak)
        text = (f"{self.module.name} fits on no mesh into {sized(self._limit(least.machine))}: the least that is found "
                f"takes {sized(round(least.peak))}, on {least.mesh.size} of {least.machine}")  # fmt: skip
        raise DoesNotFit(
            Diagnostic(Severity.ERROR, text, help="more devices divide it further, and hloom plan searches one mesh in "
                       "depth"), round(least.peak),
        )  # fmt: skip

    def _judged(self, points: Sequence[tuple[SweepPoint, Model, Choice]], best: int) -> Iterator[SweepPoint]:
        """Yields the points, with forecasts of the best different programs."""
        known: dict[object, SweepPoint] = {}
        for point, model, choice in points:
            key = point.machine, point.mesh.size, _meaning(model, choice)
            if key not in known and len(known) < best and (not known or self.left.allows()):
                known[key] = self._judge(point, model, choice, self.left.share(1 / (best - len(known))))
            found = known.get(key)
            yield point if found is None else replace(found, mesh=point.mesh, value=point.value)

    def _limit(self, name: str) -> float:
        return float(self.memory) if self.memory else self.machines[name].capacity

    def _context(self, name: str, count: int) -> PassContext:
        return replace(self.base, machine=self.machines[name].of_devices(count))

    def _classes(self, name: str, mesh: Mesh, kept: Sequence[Kept] = ()) -> Classes:
        return self.classes.of(self.machines[name], mesh.size, self._limit(name), kept)

    def _kept(self, mesh: Mesh) -> list[Kept]:
        return kept_in(self.module, self.keep, mesh, self.even)

    def _costs(self, name: str, mesh: Mesh, classes: Classes) -> ChoiceCosts:
        axes = [mesh.digits(AxisRef(axis)) for axis, _ in mesh.axes]
        decider = self._context(name, mesh.size).decider(mesh.size)
        return ChoiceCosts(Model(classes, Divisions(decider, axes, self.idle), QuickTable), ASSUMED[1])

    def _learn(self, meshes: Sequence[Mesh]) -> None:
        """Finds divisions by integer programs, for each program that some of the meshes divide: on meshes of one axis,
        and, for each machine, on one of two axes.
        """
        places: dict[Clusters, dict[str, list[Mesh]]] = {}
        for mesh, name in itertools.product(meshes, self.machines):
            places.setdefault(self._classes(name, mesh).clusters, {}).setdefault(name, []).append(mesh)
        deadline = self.begun + self.seconds * _LEARNING
        for of_machines in places.values():
            name, own = next(iter(of_machines.items()))
            classes = self._classes(name, own[0])
            for size in _ends(own):
                if classes.clusters not in self.known or time.monotonic() < deadline:
                    self._learn_axis(self._costs(name, Mesh.of(data=size), classes))
        for of_machines in places.values():
            for name, own in of_machines.items():
                square = max((mesh for mesh in own if len(mesh.axes) > 1), key=_squareness, default=None)
                left = deadline - time.monotonic()
                if square is not None and left >= _SECONDS:
                    self._learn_square(name, square, min(left, _MOST_LEARNING) / 2)

    def _learn_axis(self, costs: ChoiceCosts) -> None:
        for assumed in _LEARNED:
            for limit in (math.inf, max(costs.least, 1.0)):
                found = solve(costs.under(assumed), seconds=_SECONDS, limit=limit, soft=True, relaxes=True)
                self._keep(costs.model, found.choice)

    def _learn_square(self, name: str, square: Mesh, share: float) -> None:
        costs = self._costs(name, square, self._classes(name, square, self._kept(square)))
        usual = Usual(costs)
        usual.search(share)
        for found in by_axes(costs, self._limit(name), time.monotonic() + share)[:2]:
            self._keep(costs.model, found.choice)
        for _, choice in usual.found:
            self._keep(costs.model, choice)

    def _keep(self, model: Model, choice: Choice | None) -> None:
        known = self.known.setdefault(model.of.clusters, [])
        for axis in axes_of(model, [choice] if choice is not None else ()):
            of_clusters = tuple(axis[number] for number in model.of.of)
            if of_clusters not in known:
                known.append(of_clusters)

    def _point(self, name: str, mesh: Mesh) -> tuple[SweepPoint, Model, Choice]:
        classes, limit = self._classes(name, mesh, self._kept(mesh)), self._limit(name)
        costs, own = self._costs(name, mesh, classes), [example.number for example in classes.examples]
        known = dict.fromkeys(tuple(axis[n] for n in own) for axis in self.known.get(classes.clusters, ()))
        choice = quick(costs, list(known), limit)
        value = costs.value(choice)
        return SweepPoint(name, mesh, value, value.memory <= limit), costs.model, choice

    def _judge(self, point: SweepPoint, model: Model, choice: Choice, left: TimeLeft) -> SweepPoint:
        """Returns a point with the better forecast of its choice, with annotations of all values and of few. Rewrites
        are tried in the time that is `left`.
        """
        begun, found = time.monotonic(), list[tuple[Judged, Module]]()
        writer, context = AnnotationWriter(model.of), self._context(point.machine, point.mesh.size)
        for inside in (Inside.EVERY, Inside.FEW):
            if not found or time.monotonic() < left.deadline:
                module = writer.write(model, choice, point.mesh, inside)
                found.append((judge(module, context, point.mesh.size, self.memory, left=left), module))
        if time.monotonic() > left.deadline:  # it has tried little: without rewrites it takes about as long
            self.left = self.left.after(time.monotonic() - begun)
        judged, module = min(found, key=lambda one: one[0].rank)
        return replace(point, judged=judged, module=module)
