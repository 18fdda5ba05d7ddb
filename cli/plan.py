"""Implements `hloom plan FILE`: finds the shardings of a program that take the least time on a machine; and
`hloom sweep FILE`: compares meshes and machines.
"""

from __future__ import annotations

import argparse
from functools import partial

from .. import frontends
from ..cost.presets import parse_machine
from ..driver.planned import plan, sweep
from ..frontends.kinds import function_of
from ..ir.graph.module import Module
from ..ir.user_files import write_text
from ..report.plan import PlanReport
from ..report.progress import working
from ..report.sweep import sweep_record, sweep_text
from .messages import answer, tell_found


def plan_command(args: argparse.Namespace) -> int:
    """Prints the plan, or JSON; writes the annotated program and the strategy to files."""
    module = _read(args)
    machine = parse_machine(args.machine, args.links)
    with working("planning"):
        found = plan(module, machine, mesh=args.mesh, devices=args.devices, memory=args.memory or 0,
                     keep=args.keep, seconds=args.time, even=args.even)  # fmt: skip
    shown = PlanReport(module.name, args.machine, found)
    if args.out is not None:
        write_text(args.out, found.module.to_text())
    if args.strategy_out is not None:
        with working("leaving annotations out"):
            shown.strategy = found.strategy(args.time)
        write_text(args.strategy_out, shown.strategy.text())
    if args.pareto:
        with working("planning for less memory"):
            shown.frontier = found.pareto(seconds=args.time)
    if args.explain:
        with working("trying other hardware"):
            shown.changes = found.what_if(args.time / 3)
    return answer(args, shown.record, partial(shown.text, args.strategy_out or ""))


def sweep_command(args: argparse.Namespace) -> int:
    """Prints the table and a plot, or JSON; writes the annotated program of the best mesh to a file."""
    module = _read(args)
    with working("comparing meshes"):
        found = sweep(
            module, args.machine or [""], devices=args.devices, meshes=args.meshes, memory=args.memory or 0,
            keep=args.set, best=args.best, seconds=args.time, even=args.even,
        )  # fmt: skip
    if args.out is not None and found.best.module is not None:
        write_text(args.out, found.best.module.to_text())
    return answer(args, lambda: sweep_record(module.name, found),
                  lambda: f"{module.name}: {sweep_text(found, args.rows)}")  # fmt: skip


def _read(args: argparse.Namespace) -> Module:
    """Reads the program. Arguments of a function of JAX always need even tiles."""
    args.even = args.even or function_of(args.file) is not None
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    tell_found(args, module.warnings)
    return module
