"""Programs on ranks are scheduled without being asked where a named machine says that it saves time."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.presets import PRESETS
from hloom.driver.compile import schedule_for_ranks
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext
from hloom.runtime.inputs.inputs import inputs_for_module
from support.fsdp_steps import fsdp_step


@pytest.fixture(scope="module")
def local() -> Module:
    return hloom.partition(hloom.parse(fsdp_step(2, layers=4, width=128, batch=256)))


def chosen(local: Module, times: int) -> tuple[Module, PassContext]:
    context = PassContext(machine=PRESETS["cpu-cluster"])
    module = clone_module(local)
    schedule_for_ranks(module, context, times)
    return module, context


def test_many_runs_are_scheduled(local: Module) -> None:
    module, context = chosen(local, 10**6)
    assert module.has_schedule
    (remark,) = context.diagnostics.found
    assert "is forecast to take" in remark.message
    inputs = inputs_for_module(local)
    machine = PRESETS["cpu-cluster"]
    assert hloom.timeline(module, machine).seconds < hloom.timeline(local, machine).seconds
    for before, after in zip(hloom.simulate(local, inputs), hloom.simulate(module, inputs), strict=True):
        assert before.tobytes() == after.tobytes()


def test_single_runs_are_not(local: Module) -> None:
    module, context = chosen(local, 1)
    assert not module.has_schedule
    assert module.to_text() == local.to_text()
    assert not context.diagnostics.found


def test_what_gains_nothing_stays() -> None:
    """One collective, which the rest needs."""
    text = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[64,4] parameter(0), sharding={devices=[2,1]<=[2]}  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=add }"""
    module, context = chosen(hloom.partition(hloom.parse(text)), 10**6)
    assert not module.has_schedule
    assert not context.diagnostics.found
