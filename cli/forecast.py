"""Implements `hloom forecast FILE`: the time of a step on a machine, and its parts.

An unpartitioned program is partitioned and scheduled first, as by `hloom schedule`.
"""

from __future__ import annotations

import argparse

from ..driver.forecast import forecast_in_order
from ..ir.graph.module import clone_module
from ..passes.stages import divided_states, to_local, to_scheduled
from ..report.forecast import forecast_record, forecast_text
from ..report.schedule import critical_table
from .common import check_order, context_for, keeps_order, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program
from .streams import say, working


def forecast(args: argparse.Namespace) -> int:
    """Prints the forecast of a step, or JSON; with `--critical` also the longest path."""
    check_order(args)
    whole, context = read_program(args), context_for(args)
    local = clone_module(whole)
    divided = None if args.as_is else divided_states(local, context)
    to_local(local, context, working)
    keeps = keeps_order(args, local)
    to_scheduled(local, context, None if keeps else args.memory or 0, during=working, split=args.split_batch,
                 divided=divided)  # fmt: skip
    report(args, context)
    with working("simulating the order"):
        found = forecast_in_order(local, context.machine, whole, args.batch_of)
    if args.json:
        print_json(forecast_record(local.name, found))
        return EXIT_OK
    if args.critical:
        say(critical_table(found.bound), end="\n\n")
    say(f"{local.name}: {forecast_text(found)}")
    return EXIT_OK
