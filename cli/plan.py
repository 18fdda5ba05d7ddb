"""Implements `hloom plan FILE`: finds the shardings of a program that take the least time on a machine; and
`hloom sweep FILE`: compares meshes and machines.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import frontends
from ..cost.presets import parse_machine
from ..driver.planned import plan, sweep
from ..ir.graph.module import Module
from ..ir.user_files import write_text
from ..passes.planning.fewest import FewSettings
from ..passes.planning.on_mesh import PlanCandidate
from ..passes.planning.what_if import WhatIf
from ..report.plan import explanation_text, frontier_text, plan_record, plan_text
from ..report.progress import working
from ..report.sweep import sweep_record, sweep_text
from .messages import answer, tell_found


def plan_command(args: argparse.Namespace) -> int:
    """Prints the plan, or JSON; writes the annotated program and the strategy to files."""
    module = _read(args)
    machine = parse_machine(args.machine, args.links)
    with working("planning"):
        found = plan(module, machine, mesh=args.mesh, devices=args.devices, memory=args.memory or 0,
                     keep=args.keep, seconds=args.time)  # fmt: skip
    if args.out is not None:
        write_text(args.out, found.module.to_text())
    strategy: FewSettings | None = None
    if args.strategy_out is not None:
        with working("leaving annotations out"):
            strategy = found.strategy(args.time)
        write_text(args.strategy_out, strategy.text())
    frontier: Sequence[PlanCandidate] = ()
    if args.pareto:
        with working("planning for less memory"):
            frontier = found.pareto(seconds=args.time)
    changes: Sequence[WhatIf] = ()
    if args.explain:
        with working("trying other hardware"):
            changes = found.what_if(args.time / 3)
    texts = [f"{module.name}: {plan_text(found, args.machine or 'the default machine')}"]
    if args.pareto:
        texts.append(frontier_text(frontier))
    if args.explain:
        texts.append(explanation_text(found, changes))
    if strategy is not None:
        texts.append(f"{args.strategy_out}: {len(strategy.shardings)} annotations, which "
                     + ("give" if strategy.reproduces else "alone do not give") + " this forecast")  # fmt: skip
    return answer(args, lambda: plan_record(module.name, args.machine, found, strategy, frontier, changes),
                  lambda: "\n\n".join(texts))  # fmt: skip


def sweep_command(args: argparse.Namespace) -> int:
    """Prints the table and a plot, or JSON; writes the annotated program of the best mesh to a file."""
    module = _read(args)
    with working("comparing meshes"):
        found = sweep(
            module, args.machine or [""], devices=args.devices, meshes=args.meshes, memory=args.memory or 0,
            keep=args.set, best=args.best, seconds=args.time,
        )  # fmt: skip
    if args.out is not None and found.best.module is not None:
        write_text(args.out, found.best.module.to_text())
    return answer(args, lambda: sweep_record(module.name, found),
                  lambda: f"{module.name}: {sweep_text(found, args.rows)}")  # fmt: skip


def _read(args: argparse.Namespace) -> Module:
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    tell_found(args, module.warnings)
    return module
