"""Schedules a training step with whole and with divided optimizer states, and keeps the faster one.

Divided states (`annotating/sharded_optimizer`, ZeRO-1) take less memory, and their update less time; new weights are
gathered, where gradients were reduced on all devices before. Whether that is faster, or the only program that fits, the
schedules decide.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from ..cost.machine import SECOND
from ..cost.sizes import sized, timed
from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module
from ..ir.sharding.sharding import Sharding
from .base import PassContext
from .schedule.does_not_fit import DoesNotFit
from .schedule.recorded import recorded_forecast

_Step = Callable[[Module, PassContext], Module]  # works in place, and returns the module
_WORTH = 0.99  # the share of the time that divided states must stay below
_PASSES = 4  # how often an update reads or writes an array as large as a state, at most


def schedule_faster(
    module: Module, divided: Module, context: PassContext, scheduled: _Step, to_local: _Step, limit: float,
    until: float = math.inf,
) -> bool:  # fmt: skip
    """Schedules the program of each device, in place, within `limit` bytes, or that of a program with divided states in
    its place. Returns whether states are divided now. From the moment `until` on (of `time.monotonic`) they are only if
    the program does not fit otherwise. Raises CompileError if neither fits.
    """
    whole = replace(context, diagnostics=Diagnostics())
    own = replace(context, diagnostics=Diagnostics(), reshardings=[])
    saved, seconds, peak, error = _saved(module, divided), math.inf, 0, None
    try:
        scheduled(module, whole)
        seconds, peak = recorded_forecast(module)
    except DoesNotFit as found:
        error = found
    largest = context.machine.memory(_PASSES * saved) / SECOND  # what the update may gain
    is_short = peak > limit - saved  # of memory, so that with less in parameters faster orders may fit
    gains_little = seconds * (1 - _WORTH) > largest and not is_short
    if error is None and (gains_little or time.monotonic() >= until):
        context.diagnostics.found += whole.diagnostics.found
        return False
    program, new = to_local(divided, own), math.inf
    try:
        new = recorded_forecast(scheduled(program, own))[0]
    except DoesNotFit as found:
        if error is not None:
            least, other = sorted((error, found), key=lambda e: e.peak)
            states = "states divided" if other is found else "states as they are"
            raise least.beside([f"{states} at least {sized(other.peak)}"]) from None
    if new > seconds * _WORTH and error is None:
        text = timed(new) if new < math.inf else "no fitting schedule"
        whole.diagnostics.remark(f"sharded-optimizer: states stay as they are: {text} if divided, {timed(seconds)} now")
        context.diagnostics.found += whole.diagnostics.found
        return False
    module.take(program)
    known = context.diagnostics.found
    known += [d for d in own.diagnostics.found if d not in known]
    context.diagnostics.remark(
        f"sharded-optimizer: {sized(saved)} of parameters less on a device: {timed(new)}, "
        f"{timed(seconds) if error is None else 'no fitting schedule'} with whole ones"
    )
    return True


def _saved(local: Module, divided: Module) -> int:
    """Returns the bytes that parameters take less on a device if divided as they are in the second program."""
    saved = 0
    for given, new in zip(local.entry.parameters, divided.entry.parameters, strict=True):
        if isinstance(new.annotation, Sharding) and new.shape.is_array:
            tile = new.annotation.tiling(new.shape.rank).local_shape(new.shape)
            saved += max(given.shape.byte_size - tile.byte_size, 0)
    return saved
