"""Implements `hloom sweep FILE`: compares meshes and machines for one program."""

from __future__ import annotations

import argparse

from .. import frontends
from ..passes.planning.sweep import Sweep, SweepPoint, sweep
from ..report.sweep import sweep_text
from .exit_codes import EXIT_OK
from .messages import print_json, tell_found
from .streams import say, working, write_file


def sweep_command(args: argparse.Namespace) -> int:
    """Prints the table and a plot, or JSON; writes the annotated program of the best mesh to a file."""
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    tell_found(args, module.warnings, quiet=False)
    with working("comparing meshes"):
        found = sweep(
            module, args.machine or [""], devices=args.devices, meshes=args.meshes, memory=args.memory or 0,
            keep=args.set, best=args.best, seconds=args.time,
        )  # fmt: skip
    if args.out is not None and found.best.module is not None:
        write_file(args.out, found.best.module.to_text())
    if args.json:
        print_json(_json(module.name, found))
    else:
        say(f"{module.name}: {sweep_text(found, args.rows)}")
    return EXIT_OK


def _json(name: str, found: Sweep) -> dict[str, object]:
    return {
        "program": name, "spent": found.spent, "left_out": found.left_out, "points": list(map(_point, found.points)),
    }  # fmt: skip


def _point(point: SweepPoint) -> dict[str, object]:
    judged = point.judged
    return {
        "machine": point.machine, "mesh": dict(point.mesh.axes), "devices": point.mesh.size,
        "fits": judged.fits if judged is not None else point.fits, "model": point.value.seconds,
        "memory": point.value.memory, "seconds": judged.seconds if judged is not None and judged.fits else None,
        "peak": judged.peak if judged is not None else None,
    }  # fmt: skip
