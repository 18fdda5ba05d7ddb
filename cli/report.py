"""Implements `hloom report FILE`: everything about a partitioned program as one page, or as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.data.plan import Reported, reported
from ..report.data.record import report_data
from ..report.html.page import page
from .common import context_for, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program
from .streams import say, working, write_file


def report_command(args: argparse.Namespace) -> int:
    """Writes the page, or prints JSON; with several strategies they are compared."""
    if args.json == (args.out is not None):
        raise argparse.ArgumentTypeError("one of -o FILE.html, for a page, and --json is needed")
    if args.memory is not None and not args.schedule:
        raise argparse.ArgumentTypeError("--memory limits what --schedule may use: give both")
    strategies: list[str | None] = args.strategies or [None]
    plans = [_plan(argparse.Namespace(**vars(args) | {"strategy": path}), path) for path in strategies]
    with working("describing the program"):
        data = report_data(Path(args.file).name, plans)
    if args.json:
        print_json(data)
        return EXIT_OK
    text = page(data)
    write_file(args.out, text, "the page")
    say(f"{data['program']}: {args.out}, {len(text.encode()) / 1e3:,.0f} kB")
    return EXIT_OK


def _plan(args: argparse.Namespace, path: str | None) -> Reported:
    module, context = read_program(args), context_for(args)
    memory = (args.memory or 0) if args.schedule else None
    with working("partitioning and forecasting"):
        found = reported(module, context, Path(path).stem if path else "", memory)
    report(args, context)
    return found
