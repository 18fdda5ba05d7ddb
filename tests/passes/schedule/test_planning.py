"""Planning shares what plans have in common: the same plans, times and peaks as without."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.memory import live_memory, peak_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline, timeline_seconds
from hloom.ir.analysis.fusion_groups import Groups
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext
from hloom.passes.schedule.extract import Extract
from hloom.passes.schedule.planning import Planning, forecast
from hloom.passes.schedule.search.best import best_schedule
from hloom.passes.schedule.search.problem import Outcome
from hloom.passes.scheduling import SCHEDULE, schedule
from hloom.report.forecast import forecast_of
from support.calls import calls
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model

MACHINE = PRESETS["h100"]


@pytest.fixture(scope="module")
def local() -> Module:
    return clone_module(hloom.partition(hloom.parse(fsdp_step(4, layers=2, width=64, batch=64))).module)


def planner(problem: Extract) -> tuple[Extract, Outcome]:
    return problem, best_schedule(problem.problem, trials=50).outcome


def test_plans_of_one_preparation_are_those_made_alone(local: Module) -> None:
    peak, text, planning = peak_memory(local), local.to_text(), Planning(planner, MACHINE)
    forecast(local, MACHINE)
    prepared = planning.prepare(local, peak)
    texts = set[str]()
    for limit in (1e12, 1.2 * peak, 0.8 * peak, 1e12):
        alone = clone_module(local)
        expected = planning.plan(alone, limit)
        found = prepared.plan(limit)
        assert expected is not None
        assert found is not None
        assert found.module.to_text() == alone.to_text()
        assert (found.seconds, found.peak, found.buckets) == (expected.seconds, expected.peak, expected.buckets)
        texts.add(alone.to_text())
    assert len(texts) > 1
    assert local.to_text() == text


@pytest.mark.parametrize(("machine", "batch", "solved"), [("tpu-v4", 64, 1), ("cpu-cluster", 4096, 2)])
def test_orders_that_cannot_be_faster_are_not_planned(machine: str, batch: int, solved: int) -> None:
    """An order of computation gets a plan unless its bound is above the plan of another one; the best is the same."""
    local = hloom.partition(hloom.parse(fsdp_step(4, layers=4, width=1024, batch=batch))).module
    problems = list[Extract]()

    def noted(problem: Extract) -> tuple[Extract, Outcome]:
        problems.append(problem)
        return planner(problem)

    prepared = Planning(noted, PRESETS[machine]).prepare(local)
    found = prepared.expected(1e12)
    assert len(problems) == solved
    assert found == min(planner(problem)[1].seconds for problem in prepared.parts[0].problems())


def test_seconds_and_peaks_alone_are_those_of_all_details(local: Module) -> None:
    for machine in (MACHINE, PRESETS["cpu-cluster"]):
        for module in (local, schedule(clone_module(local), PassContext(machine=machine))):
            assert timeline_seconds(module, Clock.of(module, machine)) == timeline(module, machine).seconds
            assert peak_memory(module) == live_memory(module).peak == sum(b.bytes for b in live_memory(module).buffers)


def test_the_clock_of_a_copy_times_it_without_looking(local: Module) -> None:
    clock = Clock.of(local, MACHINE)
    known = [clock.parts(i) for i in local.entry]
    with calls(Clock._timed) as made:  # pyright: ignore[reportPrivateUsage]
        copy = clone_module(local)
        assert [Clock.of(copy, MACHINE).parts(i) for i in copy.entry] == known
        assert made == []
        root = copy.entry.root
        copy.entry.build("tuple", root)
        Clock.of(copy, MACHINE).parts(root)
        Clock.of(local, PRESETS["tpu-v4"]).parts(local.entry.root)
    assert len(made) == 2


def test_a_forecast_after_a_schedule_fuses_nothing_again(local: Module) -> None:
    module = schedule(clone_module(local), PassContext(machine=MACHINE))
    with calls(Groups.__init__) as made:
        forecast_of(module, MACHINE, module)
    assert made == []


def test_a_pipeline_records_each_pass_once() -> None:
    """Also where loops are rewritten, and every rewrite is scheduled to be compared."""
    program = hloom.parse(Model(2, loop=True).text())
    context = PassContext(machine=MACHINE)
    schedule(clone_module(hloom.partition(program).module), context)
    assert [record.name for record in context.records] == [step.name for step in SCHEDULE]
