"""Plans divide programs that compute again what loops save for others, where that is faster or nothing else fits."""

from __future__ import annotations

from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.cost.presets import PRESETS
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import AxisRef
from hloom.passes import scheduling
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.choice_costs import ChoiceCosts
from hloom.passes.planning.classes import Classes, KnownClasses
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.descent import quick
from hloom.passes.planning.judge import Effort, judge
from hloom.passes.planning.model import Model
from hloom.passes.planning.prepared import fastest_within, prepared, saving_less
from hloom.passes.planning.written import annotated
from hloom.passes.schedule.save_less import SaveLess
from hloom.report.plan import plan_text
from hloom.runtime import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module
from support.scans import LOOPS

MACHINE = PRESETS["h100"]
GIVEN = LOOPS.replace("ENTRY e {", "ENTRY e {\n  g = f32[5,8,64] parameter(2)").replace("ss, ws, empty)", "ss, ws, g)")
LARGE = GIVEN.replace("64", "1024").replace("8,1024", "4096,1024")  # arrays of 16 MB, stacks of 80


def _stacks(module: Module) -> int:
    return sum(i.opcode == "dynamic-update-slice" for c in module for i in c)


def test_programs_save_ever_less_and_compute_the_same() -> None:
    module = prepared(hloom.parse(LOOPS))
    levels = list(saving_less(module, MACHINE))
    assert [_stacks(one.module) for one in levels] == [4, 3]
    assert [one.peak for one in levels] == sorted((one.peak for one in levels), reverse=True)
    inputs = inputs_for_module(module, seed=3)
    for one in levels[1:]:
        for a, b in zip(evaluate(one.module, inputs), evaluate(module, inputs), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_the_fastest_that_fits_is_divided() -> None:
    """A product takes less time here than to write its result and to read it again."""
    levels = list(saving_less(prepared(hloom.parse(LARGE)), MACHINE))
    whole, least = levels
    assert least.seconds < 0.9 * whole.seconds
    assert fastest_within(levels, 1e12) is least.module
    assert fastest_within(levels, least.peak / 2) is least.module  # nothing fits
    slower = [whole, replace(least, seconds=0.99 * whole.seconds)]
    assert fastest_within(slower, 1e12) is whole.module
    assert fastest_within(slower, 0.9 * whole.peak) is least.module


@pytest.fixture
def saves_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules save in loops what the program says."""
    monkeypatch.setattr(scheduling, "SCHEDULE", tuple(p for p in scheduling.SCHEDULE if not isinstance(p, SaveLess)))


@pytest.mark.usefixtures("saves_what_is_given")
@pytest.mark.parametrize("saves", [True, False])
def test_the_model_has_the_time_and_the_memory_of_loops(saves: bool) -> None:
    """A stack is one array, whether a loop fills it, hands it on, or reads it."""
    context, mesh = PassContext(machine=MACHINE.of_devices(8)), hloom.Mesh.of(d=8)
    module = prepared(hloom.parse(LARGE))
    if not saves:
        module = KnownClasses(module, context.forms).of(MACHINE, 8, 1e12).clusters.module
    classes = Classes(Clusters(module, context.forms), MACHINE)
    model = Model(classes, Divisions(context.decider(8), [mesh.digits(AxisRef("d"))]))
    costs = ChoiceCosts(model)
    choice = quick(costs, (), 1e12)
    value, found = costs.value(choice), judge(annotated(model, choice, mesh), context, 8, effort=Effort.LISTED)
    assert _stacks(module) == (4 if saves else 3)
    assert value.seconds == pytest.approx(found.seconds, rel=0.1)
    assert value.memory == pytest.approx(found.peak, rel=0.15)


@pytest.mark.usefixtures("saves_what_is_given")
def test_a_plan_says_what_its_loops_compute_again() -> None:
    """The annotated program has one stack less, and the numbers of the program that was given. Usual shardings are
    slower if their schedules do not save less by themselves.
    """
    pytest.importorskip("highspy")
    module = hloom.parse(GIVEN.replace("5,8,64", "5,8,256").replace("8,64", "8,256").replace("64", "256"))
    found = hloom.plan(module, "h100", devices=4, seconds=0.2)
    assert _stacks(found.module) == 3
    assert found.recomputed == 5 * 8 * 256 * 4
    assert "loops save 10.2 KB less on a device" in plan_text(found, "h100")
    inputs = inputs_for_module(module, seed=3)
    for a, b in zip(hloom.simulate(hloom.partition(found.module), inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
