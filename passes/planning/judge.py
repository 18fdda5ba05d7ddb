"""Judges annotated programs: partitions them, schedules them within memory, and takes the forecast.

A quick judgement schedules without most of the rewrites that the scheduler tries, and without divided optimizer states,
in a fraction of the time: a program takes at most as long as it says. A listed one takes the best list schedule without
a search for buckets and orders, in a part of that time again. In both collectives start earlier where that pays, as in
the final schedule: that takes little time, and tells apart plans whose first schedules are alike.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from enum import Enum

from ...cost.attention import OutsideOfAttention
from ...cost.memory import LiveBuffer, live_memory
from ...cost.sizes import sized
from ...cost.timeline import timeline
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.module import Module, clone_module
from ..base import PassContext
from ..schedule.does_not_fit import DoesNotFit
from ..schedule.fastest import REWRITES, Fastest
from ..schedule.limits import Limits
from ..schedule.schedule import ScheduleCollectives
from ..stages import divided_states, to_local, to_scheduled
from .time_left import WITHOUT_END, TimeLeft

_WHOLE = Fastest()
_QUICK = Fastest(rewrites=REWRITES[-1:], pieces=None, past_barriers=None, rotation=None, levels=None)
_LISTS_ALONE = Limits(attempts=0)  # no plan is searched


class Effort(Enum):
    """How far a judgement searches schedules."""

    LISTED = "listed"
    QUICK = "quick"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Judged:
    """The forecast of a program on the machine: seconds of a step, those in which computation waits, and the largest
    number of bytes on a device. Seconds are infinite if the program does not fit; then `error` tells why, and `peak`
    are the fewest bytes that a schedule reached. `busy` are the seconds in which the busiest engine of collectives
    runs. The peak is reached `at` an instruction, with these `buffers`. `given` are the bytes of parameters, 0 if the
    program cannot be divided.
    """

    seconds: float
    exposed: float
    peak: int
    error: str = ""
    busy: float = 0.0
    at: str = ""
    buffers: tuple[LiveBuffer, ...] = field(default=(), repr=False)
    given: int = 0

    @property
    def fits(self) -> bool:
        return self.seconds < math.inf

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Sorts the better one first."""
        return not self.fits, self.seconds, self.peak

    @property
    def computing(self) -> float:
        """The seconds of a step in which no collective delays computation."""
        return self.seconds - self.exposed


def judge(
    module: Module, context: PassContext, devices: int, limit: int = 0, effort: Effort = Effort.WHOLE,
    parts: int = 0, left: TimeLeft = WITHOUT_END,
) -> Judged:
    """Returns the forecast of a GLOBAL program, which stays as it is, on this many devices in `limit` bytes (0: those
    of the machine). Its batch may be computed in this many `parts`. The scheduler tries rewrites, and less memory, in
    the time that is `left`; the times of its result are those of the program as the machine runs it, if the context
    tells. With less `effort` it does not try to fit a program whose parameters alone are too large.
    """
    local, divided, is_quick = clone_module(module), None, effort is not Effort.WHOLE
    silent = Diagnostics(remarks=False)
    own = replace(context, num_devices=devices, default_devices=None, diagnostics=silent, records=[])
    own.reshardings = []
    try:
        divided = None if is_quick else divided_states(local, own)
        to_local(local, own)
    except CompileError as error:
        return Judged(math.inf, 0.0, 0, str(error.diagnostics[0].message))
    kernels, given = OutsideOfAttention.on(context.machine), sum(p.shape.device_bytes for p in local.entry.parameters)
    if is_quick and given > (limit or context.machine.capacity):
        peak = live_memory(local, kernels).peak
        return Judged(math.inf, 0.0, peak, f"the parameters alone take {sized(given)} on a device", given=given)
    try:
        limits = _LISTS_ALONE if effort is Effort.LISTED else Limits()
        final = ScheduleCollectives(limits=limits, until=left.deadline)
        fastest = replace(_QUICK if is_quick else _WHOLE, until=left.until, final=final)
        divided = divided if time.monotonic() < left.until else None
        to_scheduled(local, own, limit, split=parts, divided=divided, fastest=fastest)
    except CompileError as error:
        peak = error.peak if isinstance(error, DoesNotFit) else live_memory(local, kernels).peak
        return Judged(math.inf, 0.0, peak, str(error.diagnostics[0].message), given=given)
    run, clock = context.run_as(local)
    found, held = timeline(run, context.machine, clock), live_memory(local, kernels)
    busy = max(found.busy.values(), default=0.0)
    return Judged(found.seconds, found.exposed, held.peak, "", busy, held.at, held.buffers, given)
