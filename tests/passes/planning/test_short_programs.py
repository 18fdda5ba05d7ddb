"""Forecasts by short programs: near those of the whole, in their order, and none where the whole may not fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.analysis.fewer_layers import ShortProgram
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Judged, judge
from hloom.passes.planning.model import Choice
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.short_programs import ShortPrograms
from support.deep_step import ROWS, WIDTH, deep_step

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


def quick(on: MeshPlan, choice: Choice, short: ShortProgram | None = None, limit: int = int(LIMIT)) -> Judged:
    return judge(on.annotated(choice, short=short), PassContext(machine=SLOW), DEVICES, limit, is_quick=True)


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


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_short_programs_tell_time_and_memory_of_the_whole_and_the_order_of_choices(on: MeshPlan, step: int) -> None:
    short, told, whole = short_of(on), list[Judged](), list[Judged]()
    for choice in choices(on)[::step]:
        found = short.judge(lambda program, choice=choice: quick(on, choice, program), LIMIT)
        assert found is not None
        told.append(found)
        whole.append(quick(on, choice))
        assert found.seconds == pytest.approx(whole[-1].seconds, rel=0.01)
        assert found.computing == pytest.approx(whole[-1].computing, rel=1e-6)
        assert found.peak == pytest.approx(whole[-1].peak, rel=0.05)
        assert found.given == whole[-1].given
    assert len({round(j.seconds, 9) for j in whole}) > 3 / step
    for (a, b), (c, d) in zip(itertools.combinations(told, 2), itertools.combinations(whole, 2), strict=True):
        assert (a.seconds < b.seconds) == (c.seconds < d.seconds) or c.seconds == pytest.approx(d.seconds, rel=0.01)


def test_what_may_not_fit_is_not_told_and_parameters_that_do_not_are(on: MeshPlan) -> None:
    short, choice = short_of(on), choices(on)[0]
    whole = quick(on, choice)
    assert whole.given == 4 * (LAYERS * WIDTH * WIDTH + 2 * ROWS * WIDTH)
    assert short.judge(lambda program: quick(on, choice, program), 1.05 * whole.peak) is None
    found = short.judge(lambda program: quick(on, choice, program), whole.given - 1)
    assert found is not None
    assert not found.fits
    assert "the parameters alone take" in found.error
    assert short.judge(lambda program: replace(whole, given=0), LIMIT) is None


def test_chance_in_hiding_does_not_count_once_per_layer(on: MeshPlan) -> None:
    short = short_of(on)
    few, more = Judged(10.0, 1.0, 100, given=10), Judged(18.0, 0.0, 120, given=12)
    given = iter((few, more))
    found = short.judge(lambda _: next(given), LIMIT)
    assert found is not None
    assert found.exposed == 0.0
    assert found.seconds == 18.0 + 4.5 * (short.layers - 4)
    given = iter((replace(few, seconds=9.0, exposed=0.0), replace(more, seconds=22.0, exposed=4.0)))
    found = short.judge(lambda _: next(given), LIMIT)
    assert found is not None
    assert found.exposed == short.layers


@pytest.mark.parametrize("layers", [4, 9])
def test_programs_of_few_layers_have_no_short_ones(layers: int) -> None:
    assert ShortPrograms.of(prepared(hloom.parse(deep_step(layers)))) is None
