"""Modules that are taken apart: their memory is free although the collector is paused."""

from __future__ import annotations

import gc
import weakref

import hloom
from hloom.cost.machine import DEFAULT
from hloom.cost.presets import PRESETS
from hloom.ir.analysis.loop_form import LoopForm, form_of
from hloom.ir.gc_pause import paused_collector
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import clone_module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.schedule.order_forecasts import OrderForecasts
from hloom.passes.scheduling import schedule
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model


def test_released_modules_are_gone_without_the_collector() -> None:
    module = hloom.parse(Model(loop=False).text())
    with paused_collector():
        kept, released = clone_module(module), clone_module(module)
        watched = [weakref.ref(kept.entry), weakref.ref(released.entry)]
        released.release()
        del kept, released
        assert [w() is None for w in watched] == [False, True]
    assert module.to_text() == hloom.parse(module.to_text()).to_text()


def test_schedules_free_what_they_tried() -> None:
    """Of the programs that a schedule tries, few are left when the collector has not run."""
    module = partition(hloom.parse(Model(layers=2, loop=False, width=64, hidden=128).text()))
    with paused_collector():
        entries = len(_entries())
        schedule(module, PassContext(machine=DEFAULT))
        assert len(_entries()) - entries <= 3


def test_schedules_within_memory_free_what_they_tried() -> None:
    """Also values that are computed again, one after the other, until the program fits."""
    module = hloom.partition(hloom.parse(fsdp_step(4, layers=2, width=16, batch=64))).module
    limit, context = int(0.8 * hloom.live_memory(module).peak), PassContext(machine=PRESETS["cpu-cluster"])
    with paused_collector():
        entries = len(_entries())
        schedule(module, context, limit)
        assert "values are computed again" in context.diagnostics.found[-1].message
        assert len(_entries()) - entries <= 6


def test_analyses_go_with_a_released_module() -> None:
    """They refer to their module, and it to them."""
    module = hloom.parse(Model(loop=False).text())
    with paused_collector():
        watched = weakref.ref(found := OrderForecasts.of(module, DEFAULT))
        found.peak()
        module.release()
        del module, found
        assert watched() is None


def test_known_loops_of_reductions_keep_no_program() -> None:
    with paused_collector():  # so that all of it is young
        module = hloom.parse("""add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0) z = f32[] constant(0) ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add }""")
        assert isinstance(form_of(module.entry.root), LoopForm)
        watched = weakref.ref(module)
        del module
        gc.collect(0)
        assert watched() is None


def _entries() -> list[Computation]:
    return [o for o in gc.get_objects() if isinstance(o, Computation) and len(o) > 50]
