"""Modules that are taken apart: their memory is free although the collector is paused."""

from __future__ import annotations

import gc
import weakref

import hloom
from hloom.cost.machine import DEFAULT
from hloom.ir.gc_pause import paused_collector
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import clone_module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.scheduling import schedule
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
    gc.collect()
    with paused_collector():
        entries = len(_entries())
        schedule(module, PassContext(machine=DEFAULT))
        assert len(_entries()) - entries <= 3


def _entries() -> list[Computation]:
    return [o for o in gc.get_objects() if isinstance(o, Computation) and len(o) > 50]
