"""What schedules share between orders and plans, and what they leave out, gives the results of the long way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import hloom
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.memory import peak_memory
from hloom.cost.presets import PRESETS, parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.simulation import Steps
from hloom.cost.timeline import timeline, timeline_seconds
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.schedule.bound import program_bound
from hloom.passes.schedule.extract import Extract, extract
from hloom.passes.schedule.limits import Limits
from hloom.passes.schedule.listing import RULES, ListScheduler
from hloom.passes.schedule.orders import Emission, Order, depth_first, soon
from hloom.passes.schedule.planning import Planning, forecast
from hloom.passes.schedule.plans import Plans
from hloom.passes.schedule.recorded import recorded_forecast
from hloom.passes.schedule.roles import roles_of
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.schedule.search.arrange import arrange
from hloom.passes.schedule.search.heuristics import per_tensor, saturated
from hloom.passes.schedule.search.problem import ActionKind, Outcome
from hloom.passes.schedule.write import Written
from support.calls import calls
from support.layered_programs import Model

KINDS = ("dp", "fsdp", "tp", "both")
MACHINE = PRESETS["tpu-v3"]
SLOW = parse_machine("work=f32:1G;memory=1GB", "1us/500MB")
FAST_LINKS = parse_machine("work=f32:1G;memory=1GB", "0.001ns/1000000GB")


def local(kind: str, seed: int, loop: bool = False) -> Module:
    model = Model.random(random.Random(seed).randint, kind)
    return hloom.partition(hloom.parse(replace(model, loop=loop).text())).module


def saturating(problem: Extract) -> tuple[Extract, Outcome]:
    return problem, arrange(problem.problem, saturated(problem.problem))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overlap", [1.0, 0.5])
def test_steps_of_one_order_time_all_others(kind: str, overlap: float) -> None:
    assert isinstance(SLOW, Cluster)
    module, steps, seconds = local(kind, 8, loop=kind == "fsdp"), Steps(), set[float]()
    machine = replace(SLOW, overlap_share=overlap)
    clock = Clock.of(module, machine)
    for order in orders(module, clock):
        module.entry.reorder(order)
        assert timeline_seconds(module, clock, steps) == pytest.approx(timeline(module, machine).seconds, rel=1e-12)
        seconds.add(timeline_seconds(module, clock))
    assert (len(steps) > 1) == (kind == "fsdp")
    assert kind == "fsdp" or len(seconds) > 1


def orders(module: Module, clock: Clock) -> Iterator[Order]:
    entry = module.entry
    scheduler = ListScheduler(entry, clock, roles_of(entry, clock).gathers)
    yield from (list(entry), depth_first(entry), soon(entry, clock), *map(scheduler.order, RULES))


def by_asking_all(written: Written) -> Order:
    """The order of a plan: before each reduction, everything that waits is asked whether it is ready."""
    base = list(written.computation)
    work, found = Emission(base, written.needs), set[Instruction]()
    tail = [[i for i in base if written.rank.get(i) == n] for n in range(len(written.reductions))]
    buckets, segments = iter(written.buckets), iter(written.extract.segments)

    def is_ready(i: Instruction) -> bool:
        return found.issuperset(written.needs[i])

    for action in written.plan:
        if action.kind is ActionKind.COMPUTE:
            work.emit(next(segments))
        else:
            found.update(work.order)
            opened = [n for n, b in enumerate(written.reductions) if any(map(is_ready, b))]
            for i in (i for n in opened for i in tail[n]) if action.kind is ActionKind.REDUCE else ():
                found.update(work.order)
                if is_ready(i):
                    work.emit([i])
            work.emit(next(buckets))
        found.update(work.order)
    work.emit(i for i in base if i not in written.rank)
    work.emit(i for rest in tail for i in rest)
    return work.order


@pytest.mark.parametrize("kind", ["dp", "fsdp", "both"])
def test_what_waits_for_reductions_is_emitted_where_it_is_ready(kind: str) -> None:
    module = local(kind, 8)
    prepared = Planning(saturating, MACHINE, combines=False).prepare(module)
    for problem in prepared.parts[0].problems():
        copies: dict[Instruction, Instruction] = {}
        clone_module(module, copies)
        plan = arrange(problem.problem, per_tensor(problem.problem)).plan
        written = Written(problem.of_copy(copies), plan)
        assert len(written.reductions) > 1
        assert written.order() == by_asking_all(written)


@pytest.mark.parametrize("kind", ["dp", "fsdp", "both"])
def test_a_plan_that_is_asked_for_twice_is_the_one_made_alone(kind: str) -> None:
    module = local(kind, 5)
    planning, old = Planning(saturating, MACHINE), forecast(module, MACHINE)
    plans, text = Plans(planning, old), module.to_text()
    first = plans.within(2.0 * old.peak)
    with calls(Written.__init__, keep=False) as made:
        again = plans.saturated(2.0 * old.peak)
    alone = planning.prepare(module, old.peak).plan(2.0 * old.peak)
    assert first is not None
    assert alone is not None
    assert made == []
    assert first is again
    assert (first.module.to_text(), first.seconds, first.peak) == (alone.module.to_text(), alone.seconds, alone.peak)
    plans.release(first.module, old)
    assert len(first.module.entry)  # the second asker has it
    smaller = plans.within(0.5 * old.peak)
    assert smaller is not None
    assert smaller is not first
    plans.release_all(smaller)
    assert module.to_text() == text
    assert peak_memory(smaller.module) == smaller.peak


@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_is_faster_than_the_bound_which_rules_out_plans(kind: str) -> None:
    module = local(kind, 8)
    for machine in (SLOW, MACHINE, FAST_LINKS):
        old, bound = forecast(module, machine), program_bound(module, Clock.of(module, machine)).seconds
        plans = Plans(Planning(saturating, machine), old)
        found = [plans.within(share * old.peak) for share in (2.0, 0.8)]
        assert all(plan.seconds >= bound * (1 - 1e-9) for plan in found if plan is not None)
        copy = clone_module(module)
        with calls(Written.__init__, keep=False) as made:
            run_pass(ScheduleCollectives(), copy, PassContext(machine=machine))
        assert (made == []) == (old.seconds * Limits().better <= bound)
        assert made or recorded_forecast(copy) == (pytest.approx(old.seconds, rel=1e-5), old.peak)
        assert made or machine is not SLOW
    assert made == []


@pytest.mark.parametrize("kind", ["dp", "fsdp", "both"])
def test_plans_expect_no_less_than_they_say_before_they_are_made(kind: str) -> None:
    module = local(kind, 8)
    for machine, share in ((MACHINE, 0.0), (SLOW, 0.5)):
        old = forecast(module, machine)
        for usual, limit in ((1.25 * old.peak, 2.0 * old.peak), (0.5 * old.peak, 0.8 * old.peak)):
            expected = Plans(Planning(saturating, machine), old).expected(usual, limit)
            with calls(extract, keep=False) as made:
                least = next(expected)
            assert made == []
            assert share * old.seconds < least <= next(expected)
