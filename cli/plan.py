"""Implements `hloom plan FILE`: finds the shardings of a program that take the least time on a machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from .. import frontends
from ..cost.presets import parse_machine
from ..passes.planning.fewest import FewSettings
from ..passes.planning.on_mesh import PlanCandidate
from ..passes.planning.plan import Plan, plan
from ..passes.planning.what_if import WhatIf
from ..report.plan import explanation_text, frontier_text, plan_text
from .exit_codes import EXIT_OK
from .messages import print_json, tell_found
from .streams import say, working, write_file


def plan_command(args: argparse.Namespace) -> int:
    """Prints the plan, or JSON; writes the annotated program and the strategy to files."""
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    tell_found(args, module.warnings, quiet=False)
    machine = parse_machine(args.machine, args.links)
    with working("planning"):
        found = plan(module, machine, mesh=args.mesh, devices=args.devices, memory=args.memory or 0,
                     keep=args.keep, seconds=args.time)  # fmt: skip
    if args.out is not None:
        write_file(args.out, found.module.to_text())
    strategy: FewSettings | None = None
    if args.strategy_out is not None:
        with working("leaving annotations out"):
            strategy = found.strategy(args.time)
        write_file(args.strategy_out, strategy.text())
    frontier: Sequence[PlanCandidate] = ()
    if args.pareto:
        with working("planning for less memory"):
            frontier = found.pareto(seconds=args.time)
    changes: Sequence[WhatIf] = ()
    if args.explain:
        with working("trying other hardware"):
            changes = found.what_if(args.time / 3)
    if args.json:
        print_json(_json(module.name, args.machine, found, strategy, frontier, changes))
        return EXIT_OK
    say(f"{module.name}: {plan_text(found, args.machine or 'the default machine')}")
    if args.pareto:
        say(f"\n{frontier_text(frontier)}")
    if args.explain:
        say(f"\n{explanation_text(found, changes)}")
    if strategy is not None:
        say(f"\n{args.strategy_out}: {len(strategy.shardings)} annotations, which "
            + ("give" if strategy.reproduces else "alone do not give") + " this forecast")  # fmt: skip
    return EXIT_OK


def _json(
    name: str, machine: str, found: Plan, strategy: FewSettings | None, frontier: Sequence[PlanCandidate],
    changes: Sequence[WhatIf],
) -> dict[str, object]:
    few = None if strategy is None else {"shardings": dict(strategy.shardings), "reproduces": strategy.reproduces}
    return {
        "program": name, "machine": machine, "mesh": dict(found.mesh.axes), "seconds": found.seconds,
        "peak": found.peak, "bound": found.bound, "gap": found.gap, "spent": found.spent,
        "candidates": list(map(_candidate, found.candidates)), "regrets": [asdict(r) for r in found.regrets],
        "strategy": few, "pareto": list(map(_candidate, frontier)), "limits": found.limits,
        "busy": found.best.judged.busy, "at": found.best.judged.at,
        "buffers": [asdict(b) for b in found.best.judged.buffers] if changes else [],
        "what_if": [asdict(change) for change in changes],
    }  # fmt: skip


def _candidate(one: PlanCandidate) -> dict[str, object]:
    return {
        "name": one.name, "mesh": dict(one.mesh.axes), "fits": one.judged.fits,
        "seconds": one.judged.seconds if one.judged.fits else None, "exposed": one.judged.exposed,
        "peak": one.judged.peak, "model": one.value.seconds if one.value is not None else None, "parts": one.parts,
    }  # fmt: skip
