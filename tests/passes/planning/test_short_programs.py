"""Forecasts by a short program: near those of the whole, in their order, and none where the whole may not fit."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.analysis.fewer_layers import ShortProgram
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import Mesh
from hloom.ir.tools.aliases import aliases
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Effort, Judged, judge
from hloom.passes.planning.listed import EngineSeconds, ListedForecast
from hloom.passes.planning.model import Choice
from hloom.passes.planning.more_layers import add_layers
from hloom.passes.planning.near import near
from hloom.passes.planning.on_mesh import MeshPlan, PlanCandidate
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.short_programs import ShortPrograms
from hloom.passes.planning.time_left import WITHOUT_END, TimeLeft
from hloom.passes.planning.written import Inside
from hloom.runtime.inputs.inputs import inputs_for_module
from support.deep_step import ROWS, WIDTH, deep_step, renewed_before

SLOW = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)
LAYERS, DEVICES = 16, 4
LIMIT = 1e9


@pytest.fixture(scope="module")
def on() -> MeshPlan:
    context = PassContext(machine=SLOW.of_devices(DEVICES))
    clusters = Clusters(prepared(hloom.parse(deep_step(LAYERS))), context.forms)
    return MeshPlan(Classes(clusters, context.machine), context, Mesh.of(all=DEVICES), LIMIT)


def short_of(on: MeshPlan) -> ShortPrograms:
    found = ShortPrograms.of(on.model.of.clusters.module)
    assert found is not None
    return found


def quick(on: MeshPlan, choice: Choice, limit: int = int(LIMIT)) -> Judged:
    return judge(on.annotated(choice), PassContext(machine=SLOW), DEVICES, limit, effort=Effort.QUICK)


def short(on: MeshPlan, choice: Choice, limit: float = LIMIT) -> Judged | None:
    def annotated(program: ShortProgram) -> Module:
        return on.annotated(choice, short=program)

    return short_of(on).judge(annotated, PassContext(machine=SLOW), limit, lambda layer: on.stands(layer, choice))


def choices(on: MeshPlan) -> list[Choice]:
    """Choices that divide classes of one kind alike: the batch, the weights in rows or columns, or nothing."""
    found: list[Choice] = []
    for rows, weights in itertools.product((0, 1), (0, 1, 2)):
        own: Choice = {}
        for number, one in enumerate(on.model.classes):
            is_weight = one.example.leaf is not None and one.example.leaf.shape.dims == (WIDTH, WIDTH)
            own[number] = min(weights if is_weight else rows, len(one.divisions) - 1)
        found.append(own)
    return found


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_short_programs_with_all_rewrites_tell_the_time_of_the_whole_with_them(on: MeshPlan, step: int) -> None:
    context, told, whole = PassContext(machine=SLOW), list[Judged](), list[Judged]()
    for choice in choices(on)[::step]:
        found = on.rewritten(choice, context, int(LIMIT), short_of(on), WITHOUT_END)
        assert found is not None
        told.append(found)
        whole.append(judge(on.annotated(choice), context, DEVICES, int(LIMIT)))
        assert on.rewritten(choice, context, found.peak, short_of(on), WITHOUT_END) is None  # it may not fit
    assert [one.seconds for one in told] == pytest.approx([one.seconds for one in whole], rel=0.05)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_short_program_tells_time_and_memory_of_the_whole_and_the_order_of_choices(on: MeshPlan, step: int) -> None:
    told, whole = list[Judged](), list[Judged]()
    for choice in choices(on)[::step]:
        found = short(on, choice)
        assert found is not None
        told.append(found)
        whole.append(quick(on, choice))
        assert found.seconds == pytest.approx(whole[-1].seconds, rel=0.01)
        assert found.computing == pytest.approx(whole[-1].computing, rel=1e-6)
        assert 0.7 * whole[-1].peak < found.peak < 1.05 * whole[-1].peak  # lists may take less than plans
        assert found.given == whole[-1].given
    assert len({round(j.seconds, 9) for j in whole}) > 3 / step
    for (a, b), (c, d) in zip(itertools.combinations(told, 2), itertools.combinations(whole, 2), strict=True):
        assert (a.seconds < b.seconds) == (c.seconds < d.seconds) or c.seconds == pytest.approx(d.seconds, rel=0.01)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 30))])
def test_where_a_short_program_tells_a_random_choice_it_tells_what_the_whole_does(on: MeshPlan, seed: int) -> None:
    rng = random.Random(seed)
    choice = {number: rng.randrange(len(one.rows)) for number, one in enumerate(on.model.classes)}
    whole, found = quick(on, choice), short(on, choice)
    assert found is not None or seed
    if found is not None:
        assert found.computing == pytest.approx(whole.computing, rel=1e-6)
        assert found.given == whole.given
        assert found.seconds == pytest.approx(whole.seconds, rel=0.012)


def test_layers_that_renew_the_weight_of_the_next_one_are_told() -> None:
    context = PassContext(machine=SLOW.of_devices(DEVICES))
    clusters = Clusters(prepared(hloom.parse(renewed_before(LAYERS))), context.forms)
    on = MeshPlan(Classes(clusters, context.machine), context, Mesh.of(all=DEVICES), LIMIT)
    for choice in choices(on)[::2]:
        found, whole = short(on, choice), quick(on, choice)
        assert found is not None
        assert found.seconds == pytest.approx(whole.seconds, rel=0.012)
        assert found.computing == pytest.approx(whole.computing, rel=1e-6)
        assert found.given == whole.given
        assert found.peak == pytest.approx(whole.peak, rel=0.03)


def test_what_may_not_fit_is_not_told_and_parameters_that_do_not_are(on: MeshPlan) -> None:
    choice = choices(on)[0]
    whole = quick(on, choice)
    assert whole.given == 4 * (LAYERS * WIDTH * WIDTH + 2 * ROWS * WIDTH)
    found = short(on, choice)
    assert found is not None
    assert short(on, choice, 1.05 * found.peak) is None
    found = short(on, choice, whole.given - 1)
    assert found is not None
    assert not found.fits
    assert "the parameters alone take" in found.error


def test_what_is_far_from_fitting_is_told_though_its_parameters_fit(on: MeshPlan) -> None:
    choice = choices(on)[0]
    whole, fits = quick(on, choice), short(on, choice)
    assert fits is not None
    limit = fits.peak / 1.6
    assert whole.given < limit
    found = short(on, choice, limit)
    assert found is not None
    assert (found.fits, found.peak, found.given) == (False, fits.peak, whole.given)
    assert "a list schedule takes" in found.error


def test_chance_in_hiding_does_not_count_once_per_layer(on: MeshPlan) -> None:
    layer = short_of(on).layers[0]
    few, more = ListedForecast(10.0, 9.0, {}, 100), ListedForecast(18.0, 18.0, {}, 120)
    found = layer.whole(few, more, 10)
    assert found.exposed == 0.0
    assert found.seconds == 18.0 + 4.5 * (layer.missing - 2)
    found = layer.whole(replace(few, seconds=9.0), replace(more, seconds=21.0), 10)
    assert found.exposed == 1 + layer.missing


def test_an_engine_that_is_never_done_in_time_delays_a_program_of_many_layers(on: MeshPlan) -> None:
    layer = short_of(on).layers[0]
    few = ListedForecast(10.0, 10.0, {"links": EngineSeconds(1.0, 6.0, 0.5)}, 100)
    more = ListedForecast(12.0, 12.0, {"links": EngineSeconds(1.5, 10.0, 0.5)}, 120)
    found, added = layer.whole(few, more, 10), layer.missing
    assert found.busy == 6.0 + 2 * added
    assert found.seconds == pytest.approx(1.0 + 0.25 * added + found.busy + 0.5)
    assert found.exposed == pytest.approx(found.seconds - (10.0 + added))


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))])
def test_layers_that_are_added_to_the_program_of_a_device_compute_what_more_layers_do(
    on: MeshPlan, number: int
) -> None:
    layer, choice = short_of(on).layers[number % 3], choices(on)[number]
    local = layer.local(on.annotated(choice, short=layer.program), PassContext(machine=SLOW))
    assert local is not None
    added = add_layers(local, layer.seam, 2)
    assert added
    check(local)
    layers = LAYERS - layer.missing + 2
    many = hloom.parse(deep_step(layers))
    inputs = inputs_for_module(many)
    weights = {p.name: n for n, p in enumerate(many.entry.parameters)}
    entry = local.entry
    first = next(p.name for p in map(added.get, entry.parameters) if p is not None)
    place, names = int(first[1:]), [p.name for p in entry.parameters]
    of = {f"w{place}.1": place + 1, f"w{place}.2": place + 2}
    of |= {n: int(n[1:]) - (int(n[1:]) > place) * (LAYERS - layers) for n in names if n[0] == "w" and n not in of}
    found = hloom.simulate(local, [inputs[weights[f"w{of[n]}" if n in of else n]] for n in names])
    wanted = hloom.evaluate(many, inputs)
    shared = {int(a.result): names[a.operand] for a in aliases(local.input_output_alias)}
    assert len(found) == layers
    for result, values in enumerate(found):
        whole = wanted[of[shared[result]]]
        np.testing.assert_allclose(values, whole, rtol=1e-4, atol=1e-5 * np.abs(whole).max())


@pytest.mark.slow
def test_choices_next_to_the_best_are_forecast_by_a_short_program_and_the_best_of_them_as_a_whole(on: MeshPlan) -> None:
    context, choice = PassContext(machine=SLOW.of_devices(DEVICES)), choices(on)[5]
    first = PlanCandidate("first", on.mesh, on.annotated(choice), quick(on, choice), choice=choice)
    judged: list[Choice] = []

    class Counted(MeshPlan):
        def quick(
            self, choice: Choice, context: PassContext, limit: int, left: TimeLeft, effort: Effort = Effort.QUICK,
            inside: Inside = Inside.EVERY,
        ) -> Judged:
            judged.append(choice)
            return super().quick(choice, context, limit, left, effort, inside)

    counted = Counted(on.model.of, context, on.mesh, LIMIT)
    found, *_ = near(counted, [first], context, int(LIMIT), TimeLeft(time.monotonic() + 60), short_of(on))
    assert not judged
    assert found.judged.seconds < first.judged.seconds
    assert found.choice is not None
    assert found.judged.seconds <= quick(on, found.choice).seconds


@pytest.mark.parametrize("layers", [4, 9])
def test_programs_of_few_layers_have_no_short_ones(layers: int) -> None:
    assert ShortPrograms.of(prepared(hloom.parse(deep_step(layers)))) is None
