"""Forecasts programs on a machine that runs them by native code here: with the times of their kernels.

`hloom machine calibrate` measures how fast native code is (`cost.native_speed`). A forecast prepares the program as the
backend runs it, counts the work of its kernels, and times each op by that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cost.host import HOST
from ..cost.machine import Machine
from ..cost.native_speed import Counts
from ..cost.seconds import Clock
from ..ir.graph.module import Module
from .backend import NATIVE, Backend


def program_work(module: Module, second_cache: float = HOST.near_cache) -> Sequence[tuple[float, Counts]]:
    """Returns the executions of each op in a run of a prepared program, and its work by the names of
    `cost.native_speed`, where the second cache of a core has so many bytes.
    """
    from ..codegen.native.work.times import NativeCounts

    return NativeCounts(module, second_cache).run(module)


def cold_collectives(module: Module, second_cache: float = HOST.near_cache) -> float:
    """Returns the share of the code of collectives, from 0 to 1, that caches do not hold when a prepared program runs
    one.
    """
    from ..codegen.native.work.times import NativeCounts

    return NativeCounts(module, second_cache).cold_collectives(module)


def native_clock(module: Module, machine: Machine) -> tuple[Module, Clock] | None:
    """Returns a per-device program as native code runs it, and the clock of its ops on this machine; None unless the
    speed of native code there is known.
    """
    speed = machine.native
    if not speed.is_known:
        return None
    from ..codegen.native.work.times import NativeCounts

    prepared = Backend(NATIVE).prepared(module)
    counts = NativeCounts(prepared, speed.second_cache)
    own = machine.with_cold_collectives(counts.cold_collectives(prepared))
    return prepared, Clock(own, prepared.devices, kernels=lambda op: counts.seconds(speed, op))
