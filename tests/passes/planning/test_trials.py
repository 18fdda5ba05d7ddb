"""The order in which proposals are screened and judged."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.choice_costs import PlanValue
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Judged
from hloom.passes.planning.model import Choice
from hloom.passes.planning.on_mesh import MeshPlan, PlanCandidate
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.time_left import TimeLeft
from hloom.passes.planning.trials import PlanTrial, PlanTrials, others_of
from hloom.passes.planning.turns import Proposed, turns_of
from hloom.passes.planning.usual import USUAL_STATE, WHOLE_SUMS
from hloom.passes.planning.written import Inside

STEP = """HloModule step
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  h = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(h)
  g = f32[16,64] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT n = f32[16,64] subtract(w, g)
}
"""


@dataclass
class Priced:
    """A mesh on which the only class of a choice says what it costs, in units of 1 s."""

    limit: float = math.inf
    scale: float = 1.0

    @property
    def costs(self) -> Priced:
        return self

    def prices(self, choices: Sequence[Choice]) -> list[tuple[float, ...]]:
        """Only one proposal has less to hide than others."""
        return [(choice[0], 999.0 if choice[0] == 1300 else choice[0]) for choice in choices]

    def value(self, choice: Choice) -> PlanValue:
        return PlanValue(choice[0], choice[0], 0.0, 0.0, 0.0)


ON = cast(Any, Priced())


def proposed(seconds: int, name: str = "a search") -> Proposed:
    return ON, (name, {0: seconds}, Priced().value({0: seconds}))


def test_proposals_like_others_are_screened_later_and_usual_ones_early_unless_far_behind() -> None:
    kinds = [
        [proposed(1010), proposed(1000), proposed(1001)], [proposed(1070)], [proposed(1300), proposed(1020)],
        [proposed(1400, "all sharded")], [proposed(9000, "all data parallel")],
    ]  # fmt: skip
    order = [(number, named[1][0]) for number, (_, named) in turns_of(kinds)]
    assert order == [(0, 1000), (2, 1300), (3, 1400), (2, 1020), (0, 1001), (1, 1070), (0, 1010), (4, 9000)]


def test_others_are_judged_as_the_gain_of_the_first_of_their_kind_lets_expect() -> None:
    def trial(seconds: float) -> PlanTrial:
        return PlanTrial(ON, proposed(1)[1], Judged(seconds, 0.0, 1), is_short=False)

    def judged(seconds: float) -> PlanCandidate:
        return PlanCandidate("", Mesh.of(a=2), hloom.parse("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }"),
                             Judged(seconds, 0.0, 1))  # fmt: skip

    waiting, computing = [trial(200), trial(210), trial(260)], [trial(150), trial(155)]
    order = others_of([(judged(140), waiting), (judged(150), computing)])
    assert [one.screened.seconds for one in order] == [210, 155, 260]
    nowhere = [trial(math.inf), trial(math.inf)]
    assert others_of([(judged(math.inf), nowhere)]) == nowhere[1:]


@dataclass
class Told(Priced):
    """A mesh on which choices are forecast as is told, by a screening and by a whole judgement."""

    told: Mapping[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def quick(self, choice: Choice, *_: object) -> Judged:
        return Judged(self.told[choice[0]][0], 50.0, 1)

    def annotated(self, choice: Choice) -> None:
        return None

    def candidate(self, name: str, choice: Choice, *given: object) -> PlanCandidate:
        inside = next(one for one in given if isinstance(one, Inside))
        judged = Judged(self.told[choice[0]][1], 50.0, 1)
        return PlanCandidate(name, cast(Any, None), cast(Any, None), judged, None, choice, inside=inside)

    mesh: Any = None


def test_the_best_of_ties_is_judged_with_few_annotations_before_kinds_far_behind() -> None:
    on = cast(Any, Told(told={100: (100.0, 100.0), 101: (100.4, 99.0), 130: (103.0, 103.0), 131: (104.0, 104.0)}))
    proposals = [(on, (name, {0: n}, on.value({0: n}))) for name, n in (("a", 100), ("b", 101), ("c", 130))]
    trials = PlanTrials(PassContext(), 0, TimeLeft(time.monotonic() + 1000))
    trials.run([*proposals, (on, (USUAL_STATE, {0: 131}, on.value({0: 131})))])
    names = [candidate.name for candidate in trials.made]
    assert names[:4] == ["a", "b", "b, few inside", "c"]
    on.told = {**on.told, 131: (101.0, 98.0)}
    trials = PlanTrials(PassContext(), 0, TimeLeft(time.monotonic() + 1000))
    trials.run([*proposals, (on, (USUAL_STATE, {0: 131}, on.value({0: 131})))])
    assert f"{USUAL_STATE}, few inside" in [candidate.name for candidate in trials.made]


@dataclass
class ToldByLayers(Told):
    """Tells also what short programs forecast, with all rewrites as without them."""

    rewrites: Mapping[int, float] = field(default_factory=dict[int, float])
    asked: list[int] = field(default_factory=list[int])

    def by_few_layers(self, choice: Choice, *_: object) -> Judged:
        return self.quick(choice)

    def rewritten(self, choice: Choice, *_: object) -> Judged:
        self.asked.append(choice[0])
        return Judged(self.rewrites[choice[0]], 50.0, 1)


def test_whole_sums_that_are_near_get_all_rewrites_by_short_programs_and_are_judged_first_where_these_help() -> None:
    named = {100: "a", 110: f"sharded x tensor{WHOLE_SUMS}", 112: f"zero x tensor{WHOLE_SUMS}", 140: f"b{WHOLE_SUMS}"}
    told = {100: (100.0, 98.0), 110: (110.0, 92.0), 112: (112.0, 111.0), 140: (140.0, 90.0)}
    for longest, first, asked in ((2.0, named[110], [110, 112]), (0.1, "a", [])):  # in a moment all are judged anyway
        on = ToldByLayers(told=told, rewrites={110: 91.0, 112: 113.0})
        proposals = [(cast(Any, on), (name, {0: n}, on.value({0: n}))) for n, name in named.items()]
        left = TimeLeft(time.monotonic() + 1000, longest=longest, is_first=False)
        trials = PlanTrials(PassContext(), 0, left, short=cast(Any, Priced()))
        trials.run(proposals)
        assert on.asked == asked
        assert trials.made[0].name == first


def test_usual_shardings_are_screened_when_the_share_for_screening_is_over() -> None:
    pytest.importorskip("highspy")
    machine = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)
    context = PassContext(machine=machine)
    clusters = Clusters(prepared(hloom.parse(STEP)), context.forms)
    on = MeshPlan(Classes(clusters, machine), context, Mesh.of(all=4), math.inf)
    whole = dict.fromkeys(range(len(on.model.classes)), 0)
    names = ["a search", "all data parallel", "all sharded"]
    choices = [whole, *({**whole, number: 1} for number in (0, 1))]
    trials = PlanTrials(context, 0, TimeLeft(time.monotonic() + 1000, longest=400, is_first=False))
    trials.run([(on, (name, c, on.costs.value(c))) for name, c in zip(names, choices, strict=True)])
    made = {candidate.name.removesuffix(", quick schedule") for candidate in trials.made}
    assert {"all data parallel", "all sharded"} <= made


def test_where_nothing_fits_proposals_for_less_memory_are_screened() -> None:
    pytest.importorskip("highspy")
    limit = 12_000
    machine = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)
    context = PassContext(machine=machine)
    clusters = Clusters(prepared(hloom.parse(STEP)), context.forms)
    on = MeshPlan(Classes(clusters, machine), context, Mesh.of(all=4), limit)
    whole = dict.fromkeys(range(len(on.model.classes)), 0)
    times = list[float]()

    def smaller(beyond: float) -> Iterator[Proposed]:
        times.append(beyond)
        return ((on, named) for named in on.smaller(beyond, 5.0))

    trials = PlanTrials(context, limit, TimeLeft(time.monotonic() + 600))
    trials.run([(on, ("whole", whole, on.costs.value(whole)))], smaller)
    best = min(trials.made, key=lambda candidate: candidate.rank)
    assert best.name.startswith("for less memory")
    assert best.judged.fits
    assert best.judged.peak <= limit
    assert times[0] >= 1.0


def test_where_no_screening_fits_all_kinds_are_judged_until_one_fits() -> None:
    """Only the whole search tells what fits, however long quick forecasts take."""
    told = dict.fromkeys((100, 130, 170), (math.inf, math.inf)) | {200: (math.inf, 200.0), 250: (math.inf, 250.0)}
    on = cast(Any, Told(told=told))
    proposals = [(on, ("a search", {0: n}, on.value({0: n}))) for n in told]
    trials = PlanTrials(PassContext(), 0, TimeLeft(time.monotonic() + 1000, longest=2.0, is_first=False))
    trials.run(proposals)
    choices = [candidate.choice for candidate in trials.made if candidate.inside is Inside.EVERY]
    assert choices == [{0: 100}, {0: 130}, {0: 170}, {0: 200}]
    assert trials.made[-1].judged.fits


def test_the_best_of_the_first_kinds_are_judged_with_few_annotations_inside() -> None:
    """Such a program says how values that products make are divided, and has no reads of its own."""
    pytest.importorskip("highspy")
    machine = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)
    context = PassContext(machine=machine)
    clusters = Clusters(prepared(hloom.parse(STEP)), context.forms)
    on = MeshPlan(Classes(clusters, machine), context, Mesh.of(all=4), math.inf)
    on.search(2.0)
    trials = PlanTrials(context, 0, TimeLeft(time.monotonic() + 600))
    trials.run([(on, named) for named in on.proposals])
    few = next(candidate for candidate in trials.made if candidate.inside is Inside.FEW)
    every = next(candidate for candidate in trials.made if candidate.choice == few.choice)
    assert few.name == f"{every.name}, few inside"
    given = {i.opcode for i in few.module.entry if i.sharding is not None}
    assert given == {"parameter", "dot", "subtract"}
    assert {i.opcode for i in every.module.entry if i.sharding is not None} > given
