"""Orders that do not fit, with some of their values later: less memory, the same values, and hardly more time."""

from __future__ import annotations

import hloom
from hloom.cost.memory import peak_memory
from hloom.cost.presets import PRESETS, parse_machine
from hloom.cost.sizes import Bytes
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.order_forecasts import OrderForecasts
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.schedule.start_later import start_later
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.fsdp_steps import fsdp_step

EARLY = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  v = f32[500,1000] parameter(0)
  w = f32[500,1000] parameter(1)
  a = f32[1000,1000] parameter(2)
  one = f32[] constant(1)
  g = f32[1000,1000] all-gather(v), channel_id=1, dimensions={0}, replica_groups={{0,1}}, use_global_device_ids=true
  h = f32[1000,1000] all-gather(w), channel_id=2, dimensions={0}, replica_groups={{0,1}}, use_global_device_ids=true
  ones = f32[1000,1000] broadcast(one), dimensions={}
  x = f32[1000,1000] dot(a, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[1000,1000] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[1000,1000] dot(y, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[1000,1000] add(s, ones)
}"""
MACHINE = parse_machine("work=f32:1T;memory=100GB", "1us/10GB")


def _names(module: Module) -> list[str]:
    return [i.name for i in module.entry]


def test_what_is_computed_comes_just_before_its_reader_first() -> None:
    """The constant array costs nothing later; the collective stays where it is hidden if that is enough."""
    module = hloom.parse(EARLY)
    forecasts = OrderForecasts(module, MACHINE)
    peak, seconds = forecasts.peak(), forecasts.seconds()
    assert start_later(forecasts, peak - 4_000_000) == peak - 4_000_000 == peak_memory(module)
    names = _names(module)
    assert names.index("ones") == names.index("z") - 1
    assert names.index("h") < names.index("x")
    assert forecasts.seconds() <= seconds * (1 + 1e-9)


def test_collectives_come_just_after_the_peak() -> None:
    module = hloom.parse(EARLY)
    forecasts = OrderForecasts(module, MACHINE)
    peak = start_later(forecasts, forecasts.peak() - 8_000_000)
    names = _names(module)
    assert names.index("x") < names.index("h") < names.index("s")
    assert names.index("g") < names.index("x")
    assert peak == peak_memory(module)


def test_the_best_order_stays_where_nothing_fits() -> None:
    module = hloom.parse(EARLY)
    forecasts = OrderForecasts(module, MACHINE)
    peak = start_later(forecasts, 1)
    assert peak == peak_memory(module) < OrderForecasts(hloom.parse(EARLY), MACHINE).peak()
    check(module)


def test_a_faster_plan_fits_with_some_ops_later() -> None:
    """The values stay, within the limit."""
    whole = hloom.parse(fsdp_step(4, layers=4, width=64, batch=64))
    machine = PRESETS["cpu-cluster"]
    local = partition(clone_module(whole), PassContext(machine=machine))
    free = clone_module(local)
    run_pass(ScheduleCollectives(Bytes(10**12), trials=20, budget=200), free, PassContext(machine=machine))
    forecasts = OrderForecasts(free, machine)
    seconds, limit = forecasts.seconds(), int(0.95 * forecasts.peak())
    assert start_later(forecasts, limit) <= limit
    assert forecasts.seconds() < 1.2 * seconds
    check(free)
    inputs = inputs_for_module(whole)
    for a, b in zip(simulate(free, inputs), simulate(local, inputs), strict=True):
        assert a.tobytes() == b.tobytes()
