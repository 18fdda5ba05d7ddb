"""A program keeps the forecasts of its orders until its instructions are others."""

from __future__ import annotations

import hloom
from hloom.cost.memory import peak_memory
from hloom.cost.presets import parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline_seconds
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.schedule.order_forecasts import OrderForecasts
from hloom.passes.schedule.orders import by_memory

MACHINE = parse_machine("work=f32:1G;memory=1GB", "1us/500MB")
TEXT = """HloModule two, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,64] parameter(0)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] all-reduce(y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  z = f32[64,64] tanh(x)
  w = f32[64,64] negate(y)
  ROOT r = (f32[64,64], f32[64,64], f32[64,64]) tuple(s, z, w)
}"""


def forecast(module: Module) -> tuple[float, int]:
    forecasts = OrderForecasts.of(module, MACHINE)
    return forecasts.seconds(), forecasts.peak()


def afresh(module: Module) -> tuple[float, int]:
    return timeline_seconds(module, Clock.of(module, MACHINE)), peak_memory(module)


def test_they_hold_in_another_order() -> None:
    module = hloom.parse(TEXT)
    assert forecast(module) == afresh(module)
    kept = OrderForecasts.of(module, MACHINE)
    module.entry.reorder(by_memory(module.entry))
    assert OrderForecasts.of(module, MACHINE) is kept
    assert forecast(module) == afresh(module)


def test_edits_need_others() -> None:
    """Also one of a collective alone, which leaves the times of all ops."""
    module = hloom.parse(TEXT)
    kept = OrderForecasts.of(module, MACHINE)
    entry = module.entry
    x, s = entry.find("x"), entry.find("s")
    assert x is not None
    assert s is not None
    before = forecast(module)
    entry.set_operand(s, 0, x)
    assert OrderForecasts.of(module, MACHINE) is not kept
    assert forecast(module) == afresh(module) != before


def test_a_copy_has_its_own() -> None:
    module = hloom.parse(TEXT)
    kept = OrderForecasts.of(module, MACHINE)
    copy = clone_module(module)
    found = OrderForecasts.of(copy, MACHINE)
    assert found is not kept
    assert found.module is copy
