"""Plans of small programs: they compute the same, are no worse than what is known, and keep what they must."""

from __future__ import annotations

import math
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import AxisRef
from hloom.passes.annotating.strategy import apply_strategy
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.by_hand import BY_HAND
from hloom.passes.planning.choice_costs import ChoiceCosts
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Effort, judge
from hloom.passes.planning.meshes import all_meshes
from hloom.passes.planning.model import Choice, Model
from hloom.passes.planning.on_mesh import MeshPlan, PlanCandidate
from hloom.passes.planning.pareto import frontier
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.program import solve
from hloom.passes.planning.time_left import WITHOUT_END, TimeLeft
from hloom.passes.planning.usual import ALWAYS, USUAL_STATE, Usual
from hloom.passes.resharding.table import PARTIAL, WHOLE
from hloom.passes.schedule.does_not_fit import DoesNotFit
from hloom.report.plan import PlanReport, plan_text
from hloom.runtime.inputs.inputs import inputs_for_module
from support.layered_programs import Model as Layered

SLOW = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)  # dividing pays for small programs, too
FAST = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e12, points=2e12)  # weights had better stay whole
STEP = """HloModule step
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  v = f32[64,16] parameter(2)
  h = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(h)
  y = f32[32,16] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64,16] dot(t, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nv = f32[64,16] subtract(v, g)
  s = f32[32,64] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  k = f32[16,64] dot(x, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nw = f32[16,64] subtract(w, k)
  ROOT r = (f32[16,64], f32[64,16]) tuple(nw, nv)
}
"""
LAYER = """HloModule layer
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  h = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[32,64] tanh(h)
}
"""


@pytest.fixture(autouse=True)
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


def test_candidates_compute_the_same_and_the_best_comes_first() -> None:
    module = hloom.parse(STEP)
    found = hloom.plan(module, SLOW, mesh="2x2", seconds=3)
    inputs = inputs_for_module(module)
    wanted = hloom.evaluate(module, inputs)
    for candidate in found.candidates[:3]:
        local = hloom.partition(candidate.module, machine=SLOW)
        assert local.devices == 4
        assert hloom.prove(module, local).is_equal
        for got, want in zip(hloom.simulate(local, inputs), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    names = {c.name.removesuffix(", quick schedule") for c in found.candidates}
    assert {"all data parallel", "all sharded"} <= names
    assert found.seconds == min(c.judged.seconds for c in found.candidates) > 0
    assert found.gap is not None
    assert found.gap < 0.01
    assert all(r.seconds > -1e-12 for r in found.regrets)
    assert "sharding" not in module.to_text()  # the program given is left as it is


@pytest.mark.slow
def test_of_all_meshes_the_plan_is_about_as_good_as_that_of_the_best_one() -> None:
    """By the model and by first schedules 2x4 is better than 4x2; choices next to the best ones say otherwise."""
    module, levels = hloom.parse(STEP), Cluster(links=parse_links("1ns/1GB;2:5ns/0.2GB"), memory_bytes=1e8, points=1e9)
    assert len(all_meshes(8)) == 3
    best = hloom.plan(module, levels, mesh="4x2", seconds=10)
    assert hloom.plan(module, levels, mesh="all", devices=8, seconds=20).seconds <= 1.02 * best.seconds


def test_a_plan_is_no_worse_than_the_annotations_of_the_program() -> None:
    module = hloom.load("examples/mlp_named.hlo")
    found = hloom.plan(module, "tpu-v4", seconds=0.5)
    own = next(c for c in found.candidates if c.name == "as annotated")
    assert found.seconds <= own.judged.seconds == hloom.forecast(module, "tpu-v4").seconds



@pytest.mark.parametrize(
    "body", ["ROOT c = f32[2] constant({1, 2})", "x = f32[0,4] parameter(0)\n ROOT r = f32[0,4] negate(x)"]
)
def test_a_program_that_takes_no_time_has_a_plan_without_annotations(body: str) -> None:
    found = hloom.plan(hloom.parse(f"HloModule m\nENTRY e {{ {body} }}"), SLOW, devices=4, seconds=1)
    assert found.seconds == 0.0
    strategy, frontier = found.strategy(), found.pareto(seconds=1)
    assert strategy.reproduces
    assert not strategy.shardings
    assert "0 annotations, with a forecast of 0 us" in PlanReport("m", "", found, strategy, frontier).text()



def test_what_no_sharding_can_divide_is_said() -> None:
    text = "HloModule m\nENTRY e { x = f32[<=16] parameter(0)\n ROOT r = f32[<=16] negate(x) }"
    with pytest.raises(hloom.CompileError, match="m cannot be planned: parameter x has a dynamic dimension"):
        hloom.plan(hloom.parse(text), SLOW, devices=4, seconds=1)


def test_the_annotations_of_a_program_are_a_candidate_where_they_are_kept() -> None:
    module = hloom.parse(LAYER)
    apply_strategy(module, {"x": "a,", "w": ",a"}, mesh={"a": 4})
    kept, given = (hloom.plan(module, SLOW, keep=[said], seconds=0.1) for said in ("*", "x=,a"))
    assert "as annotated" in [c.name for c in kept.candidates]
    assert "as annotated" not in [c.name for c in given.candidates]


def test_no_bound_is_said_of_a_plan_that_the_model_refuses() -> None:
    """Its schedule fits where the model does not: the bound is on plans that fit by the model, and may be longer."""
    found = hloom.plan(hloom.parse(LAYER), SLOW, devices=4, seconds=0.1)
    assert "by the model no plan takes less than " in plan_text(found, "slow")
    found.on.limit = 1.0
    assert "more than it may, and none that fits takes less than " in plan_text(found, "slow")
    assert found.gap is None
    by_hand = replace(found, candidates=(replace(found.best, value=None),))
    assert "by the model none that fits takes less than " in plan_text(by_hand, "slow")


def test_a_plan_below_the_bound_of_the_model_is_said_to_be_none_of_its_proposals() -> None:
    found = hloom.plan(hloom.parse(LAYER), SLOW, devices=4, seconds=0.1)
    by_hand = replace(found, candidates=(replace(found.best, value=None),))
    said = "; this plan is no proposal of the model, and its forecast is less"
    assert said not in plan_text(by_hand, "slow")
    assert said in plan_text(replace(by_hand, bound=2 * found.seconds), "slow")


def test_what_must_stay_stays() -> None:
    found = hloom.plan(hloom.parse(LAYER), SLOW, mesh="data=2,model=2", keep=("x=,model", "w=-,-"), seconds=0.1)
    x, w = found.module.entry.parameters
    assert str(x.sharding) == "{mesh['data'=2,'model'=2], [{}, {'model'}]}"
    assert w.sharding is not None
    assert w.sharding.is_replicated  # pyright: ignore
    assert "as annotated" not in {c.name for c in found.candidates}


@pytest.mark.parametrize(
    ("keep", "message"),
    [("q=data,", "fits no value"), ("x", "fits no annotated parameter"), ("x=three,", "no axis 'three'"),
     ("w=,data+model", "divides unevenly")],
)  # fmt: skip
def test_what_cannot_be_kept_is_named(keep: str, message: str) -> None:
    text = STEP.replace("[16,64]", "[16,60]").replace("[32,64]", "[32,60]").replace("[64,16]", "[60,16]")
    with pytest.raises(hloom.CompileError, match=message):
        hloom.plan(hloom.parse(text), SLOW, mesh={"data": 4, "model": 2}, keep=(keep,), even=True)


def test_memory_is_kept_or_the_least_is_told() -> None:
    with pytest.raises(hloom.CompileError, match="fits into 2 KB: the least that is found") as caught:
        hloom.plan(hloom.parse(STEP), SLOW, mesh="8", memory=2000, seconds=1)
    assert isinstance(caught.value, DoesNotFit)
    least = caught.value.peak
    assert least > 2000
    found = hloom.plan(hloom.parse(STEP), SLOW, mesh="8", memory=int(1.03 * least), seconds=1)
    assert found.peak <= 1.03 * least
    local = hloom.partition(found.module, machine=SLOW)
    assert hloom.prove(hloom.parse(STEP), local).is_equal


def test_other_hardware_changes_the_time_as_the_limits_say() -> None:
    large = hloom.parse(re.sub(r"\d+(?=[,\]])", _times_eight, STEP))
    fast = Cluster(links=parse_links("1ns/1000GB"), memory_bytes=1e11, points=1e10)
    computing = hloom.plan(large, fast, mesh="8", seconds=0.1)
    changes = {one.change: one for one in computing.what_if(10)}
    assert computing.limits == "computation"
    assert changes["axis data of 16"].ratio == pytest.approx(0.5, abs=0.03)
    assert changes["one more axis of 2"].ratio == pytest.approx(0.5, abs=0.03)
    assert changes["links twice as fast"].ratio == pytest.approx(1.0, abs=0.02)
    assert sum(b.bytes for b in computing.best.judged.buffers) == computing.peak
    slow = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e13, points=3e10)
    sending = hloom.plan(large, slow, mesh="8", memory=2 * computing.peak, seconds=0.1)
    changes = {one.change: one for one in sending.what_if(10)}
    assert sending.limits != "computation"
    assert changes["links twice as fast"].ratio < 0.9
    assert changes["half the memory"].ratio >= changes["twice the memory"].ratio


def test_more_devices_are_asked_of_a_machine_that_has_them() -> None:
    """A torus has another shape then: in that of eight devices, a collective of sixteen took twice as long."""
    large = hloom.parse(re.sub(r"\d+(?=[,\]])", _times_eight, re.sub(r"\d+(?=[,\]])", _times_eight, STEP)))
    changes = {one.change: one for one in hloom.plan(large, "tpu-v4", mesh="8", seconds=0.1).what_if(10)}
    assert changes["axis data of 16"].ratio < 0.95
    assert changes["one more axis of 2"].ratio < 0.95
    shaped = hloom.plan(large, "tpu-v4:2x2x2", mesh="8", seconds=0.1)
    assert {one.change for one in shaped.what_if(10)} == {"twice the memory", "half the memory", "links twice as fast"}


def _times_eight(found: re.Match[str]) -> str:
    return str(8 * int(found[0]))


@pytest.mark.slow
def test_plans_for_less_memory_are_slower_and_smaller() -> None:
    large = re.sub(r"\d+(?=[,\]])", _times_eight, STEP)
    whole = hloom.plan(hloom.parse(large), FAST, mesh="8", seconds=5)
    found = whole.pareto(count=3, seconds=10)
    assert found[0].judged == whole.best.judged
    assert len(found) > 1
    seconds, peaks = [c.judged.seconds for c in found], [c.judged.peak for c in found]
    assert seconds == sorted(seconds)
    assert peaks == sorted(peaks, reverse=True)
    assert all(c.judged.fits for c in found)


class _Noting:
    """A mesh's planning that notes when the forecasts of its candidates have to end."""

    def __init__(self, on: MeshPlan) -> None:
        self.on, self.deadlines = on, list[float]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.on, name)

    def candidate(self, *arguments: Any, left: TimeLeft = WITHOUT_END, **named: Any) -> PlanCandidate:
        self.deadlines.append(left.deadline)
        return self.on.candidate(*arguments, left=left, **named)


def test_plans_for_less_memory_try_rewrites_in_their_time_alone() -> None:
    found = hloom.plan(hloom.parse(STEP), FAST, mesh="8", seconds=0.1)
    on: Any = _Noting(found.on)
    begun = time.monotonic()
    frontier(on, found.candidates, found.context, seconds=1e6)
    until = time.monotonic() + 1e6
    assert on.deadlines
    assert all(begun < deadline <= until for deadline in on.deadlines)


def test_candidates_that_take_less_memory_than_the_plan_are_plans_for_less_memory() -> None:
    """Also where no time is left to make others."""
    found = hloom.plan(hloom.parse(re.sub(r"\d+(?=[,\]])", _times_eight, STEP)), FAST, mesh="8", seconds=0.1)
    frontier = found.pareto(seconds=0.0)
    assert frontier[0] is found.best
    assert min(c.peak for c in frontier) <= min(c.peak for c in found.candidates if c.judged.fits) < found.peak


def test_without_the_solver_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(hloom.CompileError) as caught:
        hloom.plan(hloom.parse(STEP), SLOW, mesh="8")
    assert caught.value.diagnostics[0].help == "pip install 'hloom[plan]'"


def columns(layers: int, devices: int) -> int:
    lines = ["x0 = f32[1024,512] parameter(0)"]
    for n in range(layers):
        lines.append(f"w{n} = f32[512,512] parameter({n + 1})")
        lines.append(f"h{n} = f32[1024,512] dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        lines.append(f"x{n + 1} = f32[1024,512] tanh(h{n})")
    lines[-1] = "ROOT " + lines[-1]
    module = hloom.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    context, mesh = PassContext(machine=SLOW), hloom.Mesh.of(a=devices)
    divisions = Divisions(context.decider(devices), [mesh.digits(AxisRef("a"))])
    model = Model(Classes(Clusters(prepared(module), context.forms), context.machine), divisions)
    return solve(ChoiceCosts(model)).columns


def test_tensor_parallelism_moves_no_state_along_its_axis() -> None:
    context, mesh = PassContext(machine=FAST), hloom.Mesh.of(data=2, model=2)
    divisions = Divisions(context.decider(4), [mesh.digits(AxisRef(name)) for name, _ in mesh.axes])
    model = Model(Classes(Clusters(prepared(hloom.parse(STEP)), context.forms), FAST), divisions)
    usual = Usual(ChoiceCosts(model))
    usual.search(20.0)
    found = dict(usual.found)
    assert {"all data parallel", "all sharded", "tensor x tensor", "sharded x tensor", "tensor x data"} <= set(found)
    given = {number: model.classes[number].division(row) for number, row in found["sharded x tensor"].items()}
    shown: list[tuple[int, int]] = []
    for reads in model.of.reads:
        for reader in reads.readers if reads.stand.cluster in usual.weights else ():
            source, target = (s.division(given[s.cluster]) for s in (reads.stand, reader.stand))
            shown.append((source[1], target[1]))
    assert shown
    assert all(source == target >= 0 for source, target in shown)


def test_with_whole_sums_no_sum_of_products_is_scattered_along_the_axis_of_tensor_parallelism() -> None:
    module = hloom.parse(Layered(layers=3, batch=32, width=16, hidden=64, loop=False).text())
    context, mesh = PassContext(machine=FAST), hloom.Mesh.of(data=2, model=2)
    on = MeshPlan(Classes(Clusters(prepared(module), context.forms), FAST), context, mesh, math.inf)
    on.usual.search(20.0)

    def sums(choice: Choice) -> Counter[int]:
        """How sums that are partial along the axis are read: as they are, whole, or in tiles."""
        given = {number: on.model.classes[number].division(row) for number, row in choice.items()}
        ends = [(reads.stand, reader.stand) for reads in on.model.of.reads for reader in reads.readers]
        read = ((a.division(given[a.cluster])[1], b.division(given[b.cluster])[1]) for a, b in ends)
        return Counter(min(target, 0) for source, target in read if source == PARTIAL)

    name, choice = on.usual.with_whole_sums[1]
    assert name == "sharded x tensor, whole sums"
    assert sums(choice)[WHOLE] > 0 == sums(choice)[0]
    assert sums(dict(on.usual.found)["sharded x tensor"])[0] > 0
    assert name in {preset for preset, *_ in on.presets()}


def test_a_proposal_divides_the_state_as_the_best_usual_sharding_does() -> None:
    context, mesh = PassContext(machine=FAST), hloom.Mesh.of(data=2, model=2)
    on = MeshPlan(Classes(Clusters(prepared(hloom.parse(STEP)), context.forms), FAST), context, mesh, math.inf)
    on.search(20.0)
    choice, value = next((choice, value) for name, choice, value in on.proposals if name == USUAL_STATE)
    every = [choice for name, choice in on.usual.found if name not in ALWAYS]
    best = min(every, key=lambda one: on.costs.value(one).price(math.inf))
    assert {n: choice[n] for n in on.usual.renewed} == {n: best[n] for n in on.usual.renewed}
    assert value.seconds <= on.costs.value(best).seconds


def test_weights_are_found_behind_the_slices_of_loops() -> None:
    """A training step in loops over layers has stacked weights, of which products read slices."""
    module = hloom.parse(Layered(layers=3, batch=32, width=16, hidden=64, loop=True).text())
    context, mesh = PassContext(machine=FAST), hloom.Mesh.of(data=2, model=2)
    divisions = Divisions(context.decider(4), [mesh.digits(AxisRef(name)) for name, _ in mesh.axes])
    clusters = Clusters(prepared(module), context.forms)
    usual = Usual(ChoiceCosts(Model(Classes(clusters, FAST), divisions)))
    examples = usual.costs.model.of.examples
    weights = {str(examples[n].leaf.shape) for n in usual.weights if examples[n].leaf is not None}  # pyright: ignore
    assert weights == {"f32[3,16,64]", "f32[3,64,16]"}
    usual.search(20.0)
    found = dict(usual.found)
    for number in usual.moving:
        divided = examples[number], usual.costs.model.classes[number].division(found["sharded x tensor"][number])
        assert divided[1][1] >= 0, divided  # by the axis of tensor parallelism, on the way to products, too


def test_the_size_of_the_program_grows_neither_with_layers_nor_with_devices() -> None:
    assert columns(8, 8) == columns(32, 8) == columns(8, 512)


def test_device_lists_are_annotations_too() -> None:
    text = LAYER.replace("x = f32[32,16] parameter(0)", "x = f32[32,16] parameter(0), sharding={devices=[4,1]<=[4]}")
    found = hloom.plan(hloom.parse(text), SLOW, seconds=0.1)
    assert found.mesh.size == 4
    assert "as annotated" in {c.name for c in found.candidates}


def test_without_time_one_proposal_is_scheduled_and_the_usual_ones_are_known() -> None:
    found = hloom.plan(hloom.parse(STEP), SLOW, mesh="2x2", seconds=1e-3)
    whole = [c for c in found.candidates if "quick schedule" not in c.name and BY_HAND not in c.name]
    assert len(whole) == 1
    assert found.best.judged.seconds <= min(c.judged.seconds for c in found.candidates)


def test_parameters_beyond_the_memory_are_not_tried_to_fit_quickly() -> None:
    module, context = hloom.parse(STEP), PassContext(machine=SLOW)
    quick = judge(module, context, 4, limit=1000, effort=Effort.QUICK)
    whole = judge(module, context, 4, limit=1000)
    assert not quick.fits
    assert not whole.fits
    assert quick.peak >= whole.peak > 1000
    assert "parameters alone" in quick.error


def test_without_time_what_does_not_fit_is_told() -> None:
    with pytest.raises(DoesNotFit, match="the least that is found takes"):
        hloom.plan(hloom.parse(STEP), SLOW, mesh="2x2", memory=1000, seconds=1e-3)
