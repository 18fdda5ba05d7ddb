"""Implements `hloom sweep FILE`: compares meshes and machines for one program."""

from __future__ import annotations

import argparse

from .. import frontends
from ..passes.planning.sweep import sweep
from ..report.sweep import sweep_record, sweep_text
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
        print_json(sweep_record(module.name, found))
    else:
        say(f"{module.name}: {sweep_text(found, args.rows)}")
    return EXIT_OK
