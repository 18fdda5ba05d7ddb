"""Judges annotated programs: partitions them, schedules them within memory, and takes the forecast."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...cost.attention import OutsideOfAttention
from ...cost.memory import live_memory
from ...cost.timeline import timeline
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.module import Module, clone_module
from .. import pipelines, scheduling
from ..base import PassContext
from ..schedule.does_not_fit import DoesNotFit


@dataclass(frozen=True, slots=True)
class Judged:
    """The forecast of a program on the machine: seconds of a step, those in which computation waits, and the largest
    number of bytes on a device. Seconds are infinite if the program does not fit; then `error` tells why, and `peak`
    are the fewest bytes that a schedule reached.
    """

    seconds: float
    exposed: float
    peak: int
    error: str = ""

    @property
    def fits(self) -> bool:
        return self.seconds < math.inf


def judge(module: Module, context: PassContext, devices: int, limit: int = 0) -> Judged:
    """Returns the forecast of a GLOBAL program, which stays as it is, on this many devices in `limit` bytes (0: those
    of the machine).
    """
    local = clone_module(module)
    own = replace(context, num_devices=devices, default_devices=None, diagnostics=Diagnostics(), records=[])
    own.reshardings = []
    try:
        pipelines.partition(local, own)
    except CompileError as error:
        return Judged(math.inf, 0.0, 0, str(error.diagnostics[0].message))
    kernels = OutsideOfAttention.on(context.machine)
    try:
        scheduling.schedule(local, own, limit)
    except CompileError as error:
        peak = error.peak if isinstance(error, DoesNotFit) else live_memory(local, kernels).peak
        return Judged(math.inf, 0.0, peak, str(error.diagnostics[0].message))
    found = timeline(local, context.machine)
    return Judged(found.seconds, found.exposed, live_memory(local, kernels).peak)
