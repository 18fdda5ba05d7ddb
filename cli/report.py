"""Implements `hloom report FILE`: everything about a partitioned program as one page, or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..cost.sizes import sized
from ..driver.native_clock import native_clock
from ..ir.user_files import write_text
from ..passes.base import PassContext
from ..report.data.plan import Reported, reported
from ..report.data.record import report_data
from ..report.html.page import page
from ..report.measured import compare, load_trace
from ..report.progress import working
from ..report.terminal import say
from .common import context_for, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program

_OURS, _THEIRS = "Hloom", "XLA"


def report_command(args: argparse.Namespace) -> int:
    """Writes the page, or prints JSON; several strategies, and with `--xla` its division of each, are compared."""
    trace = load_trace(args.measured) if args.measured is not None else None
    strategies: list[str | None] = args.strategies or [None]
    plans = [plan for path in strategies
             for plan in _plans(argparse.Namespace(**vars(args) | {"strategy": path}), path)]  # fmt: skip
    if trace is not None:
        plans[0] = replace(plans[0], measured=compare(plans[0].forecast.schedule, plans[0].local.name, trace))
    with working("describing the program"):
        data = report_data(Path(args.file).name, plans)
    if args.json:
        print_json(data)
        return EXIT_OK
    write_text(args.out, text := page(data), "the page")
    say(f"{data['program']}: {args.out}, {sized(len(text.encode()))}")
    return EXIT_OK


def _context(args: argparse.Namespace) -> PassContext:
    return replace(context_for(args), as_run=native_clock)


def _plans(args: argparse.Namespace, path: str | None) -> Iterator[Reported]:
    """Yields the plan of one strategy, and with `--xla` the one by XLA's partitioner."""
    module, context = read_program(args), _context(args)
    memory = (args.memory or 0) if args.schedule else None
    label = Path(path).stem if path else _OURS if args.xla else ""
    with working("partitioning and forecasting"):
        found = reported(module, context, label, memory)
    report(args, context)
    yield found
    if args.xla:
        from ..driver.by_xla import reported_by_xla

        with working("partitioning by XLA"):
            yield reported_by_xla(found, _context(args), f"{label} by {_THEIRS}" if path else _THEIRS, memory)
