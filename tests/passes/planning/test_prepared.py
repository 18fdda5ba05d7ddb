"""Plans divide programs that compute again what loops save for others, where that is faster or nothing else fits."""

from __future__ import annotations

from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.cost.presets import PRESETS
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import AxisRef
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.choice_costs import ChoiceCosts
from hloom.passes.planning.classes import Classes, KnownClasses
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.descent import quick
from hloom.passes.planning.judge import Effort, Judged, judge
from hloom.passes.planning.model import Model
from hloom.passes.planning.prepared import fastest_within, prepared
from hloom.passes.planning.written import annotated
from hloom.passes.schedule.save_less import saving_less
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


def test_the_model_has_the_time_and_the_memory_of_loops() -> None:
    """A stack is one array, whether a loop fills it, hands it on, or reads it. What the model expects of the program
    that saves less, the schedule makes of the one that saves more.
    """
    context, mesh = PassContext(machine=MACHINE.of_devices(8)), hloom.Mesh.of(d=8)
    more = prepared(hloom.parse(LARGE))
    less = KnownClasses(more, context.forms).of(MACHINE, 8, 1e12).clusters.module
    assert [_stacks(module) for module in (more, less)] == [4, 3]
    expected, judged = list[float](), list[Judged]()
    for module in (more, less):
        classes = Classes(Clusters(module, context.forms), MACHINE)
        model = Model(classes, Divisions(context.decider(8), [mesh.digits(AxisRef("d"))]))
        costs = ChoiceCosts(model)
        choice = quick(costs, (), 1e12)
        expected.append(costs.value(choice).seconds)
        judged.append(judge(annotated(model, choice, mesh), context, 8, effort=Effort.LISTED))
    assert costs.value(choice).memory == pytest.approx(judged[1].peak, rel=0.15)
    assert judged[0].peak == judged[1].peak
    assert expected[1] < 0.9 * expected[0]
    assert [found.seconds for found in judged] == pytest.approx([expected[1]] * 2, rel=0.1)


def test_a_plan_says_what_its_loops_compute_again() -> None:
    """The annotated program has one stack less, and the numbers of the program that was given. Usual shardings are
    slower if their schedules do not save less by themselves.
    """
    pytest.importorskip("highspy")
    module = hloom.parse(GIVEN.replace("8,64", "1,64").replace("f32[8,", "f32[1,").replace("64", "4096"))  # no batch
    found = hloom.plan(module, "h100", devices=4, seconds=0.2)
    assert _stacks(found.module) == 3
    assert found.recomputed == 5 * 4096 * 4
    assert "loops save 20.5 KB less on a device" in plan_text(found, "h100")
    inputs = inputs_for_module(module, seed=3)
    for a, b in zip(hloom.simulate(hloom.partition(found.module), inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
