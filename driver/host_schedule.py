"""Schedules programs that run on ranks, where that is forecast to save more time than it takes.

A forecast needs a machine: that of `hloom machine calibrate`, or another that the user names. Without a schedule equal
collectives of a program are combined (`combine_collectives`), and a schedule has to be faster than that. It cannot save
more than the time for which computation waits for collectives, so a program that runs once, or hardly communicates, is
not scheduled at all.
"""

from __future__ import annotations

from dataclasses import replace

from ..cost.host import HOST
from ..cost.timeline import timeline
from ..ir.diagnostics import CompileError, Diagnostics
from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext, run_pipeline
from ..passes.pipelines import schedule
from ..passes.schedule.combine_collectives import CombineCollectives

_BETTER = 0.99  # share of the time without a schedule that one must stay below


def schedule_for_ranks(module: Module, context: PassContext, times: float) -> None:
    """Schedules a LOCAL module in place if `times` runs on the context's machine are forecast to take less time, and
    remarks on it.
    """
    combined = clone_module(module)
    run_pipeline([CombineCollectives()], combined, PassContext())
    plain = timeline(combined, context.machine)
    if plain.exposed * HOST.scheduled_share * times < HOST.scheduling * sum(map(len, module)):
        return
    scheduled, unheard = clone_module(module), Diagnostics()
    try:
        schedule(scheduled, replace(context, diagnostics=unheard))
    except CompileError:  # the machine may have less memory than the host that plays it
        return
    seconds = timeline(scheduled, context.machine).seconds
    if seconds < plain.seconds * _BETTER:
        module.take(scheduled)
        saved = 1 - seconds / plain.seconds
        context.diagnostics.remark(
            f"the program is scheduled, as by --schedule: a run is forecast to take {saved:.0%} less time",
            help="--no-schedule runs it as it is",
        )
