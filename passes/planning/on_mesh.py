"""Plans a program on one mesh: proposals of the integer program, the usual shardings, and the price of each choice."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.fewer_layers import ShortProgram
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.sharding.mesh import AxisRef, Mesh
from ..base import PassContext
from ..op_sharding.divisions import Divisions
from ..propagation.values import Leaf
from ..resharding.table import WHOLE, Division, ReshardTable
from .choice_costs import ChoiceCosts, PlanValue
from .classes import Classes
from .descent import alternatives, axes_of, descend
from .judge import Effort, Judged, judge
from .model import Choice, Model
from .moves import QuickTable
from .program import solve
from .search import ASSUMED, by_axes, glance, search
from .short_programs import RepeatableLayer, ShortPrograms
from .time_left import WITHOUT_END, TimeLeft
from .usual import ALWAYS, USUAL_STATE, Usual
from .written import AnnotationWriter, Inside

_EXACT = 2  # axes, up to which each reshard is searched; on three there are thousands, of 15 ms each
_SECONDS = 10.0  # of an integer program
_STATE = 0.4  # of the time for proposals, until which one with state as in a usual sharding is searched
_SHARES = (1.0, 0.7, 0.4, 0.0)  # of the memory, for which choices are proposed if no program fits
QUICK_SCHEDULE = ", quick schedule"  # ends the names of candidates whose forecast is that of one
_LONGER = 1.5  # times the best proposal, from which on they are not


@dataclass(frozen=True, slots=True)
class Regret:
    """A parameter's sharding against its best other one, all else equal: the seconds that the model adds."""

    parameter: str
    chosen: str
    other: str
    seconds: float


Named = tuple[str, Choice, PlanValue]


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A sharding of the program: who proposed it, on which mesh, as an annotated program, and its forecast. `value` is
    its value in the model and `choice` its choice, if it comes from the model; `parts` is the number of parts in which
    it computes the batch, 0 for the whole. `inside` tells how much its annotations say: those of a candidate called
    `.., few inside` or `.., inside free` leave the rest to propagation.
    """

    name: str
    mesh: Mesh
    module: Module = field(repr=False)
    judged: Judged
    value: PlanValue | None = None
    choice: Choice | None = field(default=None, repr=False)
    parts: int = 0
    inside: Inside = Inside.EVERY

    @property
    def seconds(self) -> float:
        """The forecast of a step."""
        return self.judged.seconds

    @property
    def peak(self) -> int:
        """The largest number of bytes on a device."""
        return self.judged.peak

    @property
    def rank(self) -> tuple[bool, float, int]:
        return self.judged.rank


class MeshPlan:
    """The planning of a program on one mesh."""

    def __init__(self, classes: Classes, context: PassContext, mesh: Mesh, limit: float) -> None:
        self.mesh, self.limit = mesh, limit
        axes = [mesh.digits(AxisRef(name)) for name, _ in mesh.axes]
        table = ReshardTable if len(axes) <= _EXACT else QuickTable
        self.model = Model(classes, Divisions(context.decider(mesh.size), axes), table)
        self.costs = ChoiceCosts(self.model)
        self.usual = Usual(self.costs.under(ASSUMED[1]))
        self.proposals: list[Named] = []
        self.bound = 0.0
        self._pairs: dict[RepeatableLayer, set[tuple[int, int]]] = {}
        self._writers: dict[ShortProgram | None, AnnotationWriter] = {}

    def glance(self) -> float:
        """Finds one proposal in a moment, and returns its price if a part of the collectives that may hide does not."""
        found = glance(self.costs.under(ASSUMED[1]), self.limit)
        self.proposals = [(found.stage, found.choice, self.costs.value(found.choice))]
        return found.value.price(self.limit)

    def search(self, seconds: float) -> None:
        begun = time.monotonic()
        self.usual.search(seconds / 4)
        known = axes_of(self.model, [choice for _, choice in self.usual.found])
        own = self._of_usual_state(begun + seconds * _STATE)
        found = search(self.costs, self.limit, seconds + begun - time.monotonic(), known)
        self.bound = found.bound
        self.proposals = [(p.stage, p.choice, p.value) for p in found.proposals] + own

    def _of_usual_state(self, deadline: float) -> list[Named]:
        """Returns the best choice in which weights, and other state that the step renews, are divided as in the best
        of the usual shardings that divide by axes in different ways; none without one.
        """
        every = [choice for name, choice in self.usual.found if name not in ALWAYS]
        if not every:
            return []
        best = min(every, key=lambda choice: self.costs.value(choice).price(self.limit))
        given = {number: self.model.classes[number].division(best[number]) for number in self.usual.renewed}
        found = by_axes(self.costs.under(ASSUMED[0]), self.limit, deadline, given=given)
        whole = [p.choice for p in found if all(p.choice[number] == best[number] for number in given)]
        return [(USUAL_STATE, choice, self.costs.value(choice)) for choice in whole[:1]]

    def prices(self, choices: Sequence[Choice]) -> list[tuple[float, ...]]:
        """Returns the prices of choices under each assumption on overlap."""
        every = [self.costs.under(assumed).values(choices) for assumed in ASSUMED]
        return [tuple(value.price(self.limit) for value in of_one) for of_one in zip(*every)]

    @property
    def least(self) -> float:
        """The seconds of the best proposal that fits into memory by the model, as those of the bound do."""
        fitting = (value.seconds for _, _, value in self.proposals if value.memory <= self.limit)
        return min(fitting, default=math.inf)

    @property
    def undivided(self) -> float:
        """The seconds of a step in which every device computes the whole program."""
        whole = (WHOLE,) * len(self.model.divisions.sizes)
        return sum(float(c.computing[c.row_of[whole]]) if whole in c.row_of else math.inf for c in self.model.classes)

    def least_memory(self, seconds: float = _SECONDS) -> Choice | None:
        """Returns a choice that takes little memory; None if the solver finds none in this many seconds."""
        return solve(self.costs, limit=max(self.costs.least, 1.0), soft=True, seconds=seconds).choice

    def smaller(self, beyond: float, seconds: float) -> Iterator[Named]:
        """Yields choices for ever less memory, where programs take so many times (`beyond`) the bytes that the model
        tells. The solver takes at most this many seconds.
        """
        starts = [choice for _, choice, _ in self.proposals[:2]]
        starts += [choice for choice in [self.least_memory(min(seconds, _SECONDS))] if choice is not None]
        for share in _SHARES if starts else ():
            choice = self.within(self.limit * share / beyond, starts)
            yield "for less memory", choice, self.costs.value(choice)

    def within(self, limit: float, starts: Sequence[Choice]) -> Choice:
        """Returns the best choice that takes this many bytes in the model, as far as descents from others find it."""
        limit = max(limit, self.costs.least, 1.0)
        found = [descend(self.costs, start, limit) for start in starts]
        return min(found, key=lambda choice: self.costs.value(choice).price(limit))

    def annotated(
        self, choice: Choice, inside: Inside = Inside.EVERY, short: ShortProgram | None = None
    ) -> Module:
        """Returns the program, or a `short` one for it, with a choice as annotations: of parameters and results, and of
        values `inside`.
        """
        if short not in self._writers:
            self._writers[short] = AnnotationWriter(self.model.of, short)
        return self._writers[short].write(self.model, choice, self.mesh, inside)

    def quick(
        self, choice: Choice, context: PassContext, limit: int, left: TimeLeft, effort: Effort = Effort.QUICK,
        inside: Inside = Inside.EVERY,
    ) -> Judged:
        """Returns the forecast of a choice by a schedule of little `effort` in `limit` bytes (0: those of the machine),
        in the time that is `left`.
        """
        return judge(self.annotated(choice, inside), context, self.mesh.size, limit, effort, left=left)

    def by_few_layers(
        self, choice: Choice, context: PassContext, short: ShortPrograms, inside: Inside = Inside.EVERY
    ) -> Judged | None:
        """Returns the forecast of a choice by short programs; None if they do not tell it."""
        return short.judge(
            lambda program: self.annotated(choice, inside, program), context, self.limit,
            lambda layer: self.stands(layer, choice),
        )  # fmt: skip

    def rewritten(
        self, choice: Choice, context: PassContext, limit: int, short: ShortPrograms, left: TimeLeft
    ) -> Judged | None:
        """Returns the forecast of a choice with all rewrites by short programs; None if they do not tell it."""
        return short.rewritten(
            lambda program: self.annotated(choice, short=program), context, limit, left,
            lambda layer: self.stands(layer, choice),
        )  # fmt: skip

    def stands(self, layer: RepeatableLayer, choice: Choice) -> bool:
        """Whether a layer of a short program is divided as those that it stands for."""
        if layer not in self._pairs:
            self._pairs[layer] = _different(self.model.of, layer)
        of = self.model.classes
        return all(of[a].division(choice[a]) == of[b].division(choice[b]) for a, b in self._pairs[layer])

    def candidate(
        self, name: str, choice: Choice, context: PassContext, limit: int,
        inside: Inside = Inside.EVERY, left: TimeLeft = WITHOUT_END, known: Judged | None = None,
    ) -> PlanCandidate:
        """Returns a choice with the forecast of its program, with annotations of values `inside`, in `limit` bytes (0:
        those of the machine). Rewrites are tried in the time that is `left`. A `known` forecast, that of a
        quick schedule, counts if it is better, since rewrites are chosen before collectives start earlier.
        """
        module = self.annotated(choice, inside)
        judged = judge(module, context, self.mesh.size, limit, left=left)
        if known is not None and known.rank < judged.rank:
            name, judged = f"{name}{QUICK_SCHEDULE}", known
        return PlanCandidate(name, self.mesh, module, judged, self.costs.value(choice), choice, inside=inside)

    def presets(self) -> list[Named]:
        """Returns the usual shardings: all weights whole, all divided by all axes together, and combinations of axes
        unless the model says that they take much longer than the proposals.
        """
        usual = self.usual.found + self.usual.with_whole_sums
        every = [(name, choice, self.costs.value(choice)) for name, choice in usual]
        every.sort(key=lambda named: named[2].price(self.limit))
        most = _LONGER * min((value.price(self.limit) for _, _, value in self.proposals), default=math.inf)
        return [one for one in every if one[0] in ALWAYS or one[2].price(self.limit) <= most]

    def regrets(self, choice: Choice | None) -> Iterator[Regret]:
        """Yields the price of each sharding of a parameter against its best other one, highest first."""
        if choice is None:
            return
        own: dict[int, Leaf] = {}
        for parameter in self.model.of.clusters.module.entry.parameters:
            leaf = self.model.of.clusters.graph.leaves[parameter][0]
            number = self.model.of.of[self.model.of.clusters.home[leaf][0].number]
            of_class = self.model.classes[number]
            if of_class.example.leaf is leaf and len(of_class.rows) > 1:
                own[number] = leaf
        found: list[Regret] = []
        for (number, leaf), prices in zip(own.items(), alternatives(self.costs, choice, own)):
            row, others = choice[number], prices.copy()
            others[row] = math.inf
            chosen, other = (
                self._text(self.model.classes[number].division(r), leaf.shape.rank) for r in (row, int(others.argmin()))
            )
            found.append(Regret(leaf.instruction.name, chosen, other, float(others.min() - prices[row])))
        yield from sorted(found, key=lambda r: -r.seconds)

    def _text(self, division: Division, rank: int) -> str:
        return division_text(division, rank, self.mesh)


def division_text(division: Division, rank: int, mesh: Mesh) -> str:
    """Returns a division as a strategy file writes it: `data+model,`."""
    dims = ["+".join(n for (n, _), place in zip(mesh.axes, division) if place == dim) for dim in range(rank)]
    return (dims[0] or "-") if rank == 1 else ",".join(dims)


def _different(classes: Classes, layer: RepeatableLayer) -> set[tuple[int, int]]:
    """Returns the pairs of different classes that values of a layer, and of those that it stands for, belong to."""
    leaves, home = classes.clusters.graph.leaves, classes.clusters.home

    def numbers(instruction: Instruction) -> list[int]:
        return [classes.of[home[leaf][0].number] for leaf in leaves[instruction] if leaf in home]

    own = list(map(numbers, layer.layer))
    every = ((a, b) for other in layer.others for of, i in zip(own, other) for a, b in zip(of, numbers(i)))
    return {(a, b) for a, b in every if a != b}
