"""Implements `hloom forecast FILE`: the time of a step on a machine, and its parts.

An unpartitioned program is partitioned and scheduled first, as by `hloom schedule`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..cost.layout import MeshLayout
from ..driver.forecast import forecast_in_order
from ..ir.graph.module import clone_module
from ..passes.stages import divided_states, to_local, to_scheduled
from ..report.forecast import StepForecast, forecast_text
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
        print_json(_json(local.name, found))
        return EXIT_OK
    if args.critical:
        say(critical_table(found.bound), end="\n\n")
    say(f"{local.name}: {forecast_text(found)}")
    return EXIT_OK


def _json(name: str, found: StepForecast) -> dict[str, object]:
    schedule, bound = found.schedule, found.bound
    path = [{"name": s.instruction.name, "seconds": s.seconds, "runs": s.runs, "depth": s.depth} for s in bound.path]
    named = ("devices", "seconds", "utilisation", "with_recomputation", "next", "rate", "unit", "kernels", "torus",
             "error", "peak")  # fmt: skip
    return {
        "program": name, "machine": schedule.machine, **{key: getattr(found, key) for key in named},
        "layout": _layout(found.layout) if found.layout is not None else None,
        "parts": [asdict(part) for part in found.parts], "exposed": schedule.exposed, "at": schedule.at,
        "buffers": [asdict(buffer) for buffer in schedule.memory.buffers[:10]],
        "bound": {"seconds": bound.seconds, "by": bound.by, "length": bound.length, "path": path},
    }  # fmt: skip


def _layout(found: MeshLayout) -> dict[str, object]:
    order = {"dims": list(found.order.dims), "perm": list(found.order.perm)}
    return {"axes": list(found.lines), "seconds": found.seconds, "by_rows": found.by_rows, "order": order}
