"""Implements `hloom report FILE`: everything about a partitioned program as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.data.plan import Reported, reported
from ..report.data.record import report_data
from .common import context_for, read_program, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .streams import working


def report_command(args: argparse.Namespace) -> int:
    """Prints JSON; with several strategies they are compared."""
    if not args.json:
        raise argparse.ArgumentTypeError("--json is needed")
    if args.memory is not None and not args.schedule:
        raise argparse.ArgumentTypeError("--memory limits what --schedule may use: give both")
    strategies: list[str | None] = args.strategies or [None]
    plans = [_plan(argparse.Namespace(**vars(args) | {"strategy": path}), path) for path in strategies]
    with working("describing the program"):
        data = report_data(Path(args.file).name, plans)
    print_json(data)
    return EXIT_OK


def _plan(args: argparse.Namespace, path: str | None) -> Reported:
    module, context = read_program(args), context_for(args)
    with working("partitioning and forecasting"):
        found = reported(
            module, context, Path(path).stem if path else "", (args.memory or 0) if args.schedule else None
        )
    report(args, context)
    return found
