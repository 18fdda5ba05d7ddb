"""Implements `hloom schedule FILE`: schedules a program, and prints its forecast, collective by collective.

An unpartitioned program is partitioned first. A program that is scheduled already (Hloom's own output, or XLA's print
of a compiled program) keeps its order, and so does any with `--as-is`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ..cost.seconds import Clock
from ..driver.forecast import schedule_in_order
from ..ir.diagnostics import fail
from ..ir.tools.names import matching
from ..passes.schedule.bound import program_bound
from ..passes.schedule.sizes import sized
from ..passes.stages import divided_states, to_local, to_scheduled
from ..report.measured import agreement_record, agreement_text, compare, load_trace
from ..report.schedule import Scheduled, critical_table, ms, schedule_record, schedule_summary, schedule_table
from ..report.schedule_trace import schedule_trace
from .common import check_order, context_for, keeps_order, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program
from .streams import say, working, write_file


def schedule(args: argparse.Namespace) -> int:
    """Prints a table of collectives and a summary, or JSON; with `--measured` the comparison with a run."""
    check_order(args)
    measured = load_trace(args.measured) if args.measured is not None else None
    module = read_program(args)
    context = context_for(args)
    divided = None if args.as_is else divided_states(module, context)
    to_local(module, context, working)
    keeps = keeps_order(args, module)
    before = None if keeps else schedule_in_order(module, context.machine)
    to_scheduled(module, context, None if keeps else args.memory or 0, flat=args.flat_parameters, during=working,
                 split=args.split_batch, divided=divided)
    report(args, context)
    with working("simulating the order"):
        found = schedule_in_order(module, context.machine)
    limit: int | None = args.memory
    if before is None and limit is not None and found.peak > limit:
        fail(f"{module.name} keeps its order, which takes {sized(found.peak)} at {found.at}: {sized(limit)} "
             "are too little", help="hloom opt with --passes=schedule{memory=..} orders it anew")
    if args.trace is not None:
        write_file(args.trace, json.dumps(schedule_trace(found, module.name)) + "\n", "the trace")
    compared = compare(found, measured) if measured is not None else None
    if args.json:
        agreement = {} if compared is None else {"measured": agreement_record(compared)}
        print_json(schedule_record(module, found, before) | agreement)
        return EXIT_OK
    if compared is not None:
        say(agreement_text(compared))
        return EXIT_OK
    if shown := _matching(found.collectives, args.only):
        say(schedule_table(shown, args.all), end="\n\n")
    if args.critical:
        say(critical_table(program_bound(module, Clock.of(module, context.machine))), end="\n\n")
    count = f"{module.devices} device{'s' * (module.devices != 1)}"
    say(f"{module.name}: {count}; times in ms\n{schedule_summary(found)}")
    if before is not None:
        say(f"before: {ms(before.seconds)}, {ms(before.exposed)} of it exposed; peak {before.peak:,} bytes")
    return EXIT_OK


def _matching(found: Sequence[Scheduled], patterns: Sequence[str]) -> Sequence[Scheduled]:
    """Returns the collectives of which a word fits one of the patterns; all if there are none. Raises CompileError if
    none fits.
    """
    kept = matching(found, patterns, lambda c: (c.name, c.kind, c.cause, c.source, c.groups, c.state))
    if patterns and not kept:
        fields = "names, kinds, causes, sources, groups and states"
        fail(f"no collective fits {' or '.join(patterns)}", help=f"patterns are of {fields}; * matches anything")
    return kept
