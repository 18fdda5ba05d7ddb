"""Implements `hloom schedule FILE`: schedules a program, and prints its forecast, collective by collective; and `hloom
forecast FILE`: the time of a step on a machine, and its parts.

An unpartitioned program is partitioned first. A program that is scheduled already (Hloom's own output, or XLA's print
of a compiled program) keeps its order, and so does any with `--as-is`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial

from ..cost.seconds import Clock
from ..cost.sizes import sized
from ..driver.forecast import forecast_in_order, put_in_order, schedule_in_order
from ..ir.diagnostics import fail
from ..ir.graph.module import Module, clone_module
from ..ir.user_files import write_text
from ..passes.base import PassContext
from ..passes.schedule.bound import program_bound
from ..report.forecast import forecast_record, forecast_text
from ..report.measured import agreement_record, agreement_text, compare, load_trace
from ..report.progress import working
from ..report.schedule import Schedule, ScheduleReport, critical_table
from ..report.schedule_trace import schedule_trace
from .common import context_for, report
from .messages import answer
from .reading import read_program


def schedule(args: argparse.Namespace) -> int:
    """Prints a table of collectives and a summary, or JSON; with `--measured` the comparison with a run."""
    measured = load_trace(args.measured) if args.measured is not None else None
    module = read_program(args)
    context = context_for(args)
    before = _in_order(args, module, context, args.flat_parameters, with_before=True)
    with working("simulating the order"):
        found = schedule_in_order(module, context.machine)
    if before is None and args.memory is not None and found.peak > args.memory:
        fail(f"{module.name} keeps its order, which takes {sized(found.peak)} at {found.at}: {sized(args.memory)} "
             "are too little", help="hloom opt with --passes=schedule{memory=..} orders it anew")
    if args.trace is not None:
        write_text(args.trace, json.dumps(schedule_trace(found, module.name)) + "\n", "the trace")
    shown = ScheduleReport(module, found, before)
    if measured is not None:
        compared = compare(found, module.name, measured)
        return answer(args, lambda: shown.record() | {"measured": agreement_record(compared)},
                      lambda: agreement_text(compared))  # fmt: skip
    if args.critical:
        shown = replace(shown, path=program_bound(module, Clock.of(module, context.machine)))
    return answer(args, shown.record, partial(shown.text, args.only, args.all))


def forecast(args: argparse.Namespace) -> int:
    """Prints the forecast of a step, or JSON; with `--critical` also the longest path."""
    whole, context = read_program(args), context_for(args)
    _in_order(args, local := clone_module(whole), context)
    with working("simulating the order"):
        found = forecast_in_order(local, context.machine, whole, args.batch_of)
    critical = f"{critical_table(found.bound)}\n\n" if args.critical and not args.json else ""
    return answer(args, lambda: forecast_record(local.name, found),
                  lambda: f"{critical}{local.name}: {forecast_text(found)}")  # fmt: skip


def _in_order(
    args: argparse.Namespace, module: Module, context: PassContext, flat: bool = False, with_before: bool = False
) -> Schedule | None:
    found = put_in_order(module, context, as_is=args.as_is, memory=args.memory or 0, flat=flat, split=args.split_batch,
                         with_before=with_before, during=working)  # fmt: skip
    report(args, context)
    return found
