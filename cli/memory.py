"""Implements `hloom memory FILE`: live memory of the program per device, its peak, and the buffers live at the peak.

An unpartitioned program is partitioned first. A per-device program (Hloom's own output, or XLA's print of a compiled
program) is used unchanged.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..driver.program import Program
from ..report.memory import buffers_table, curve_text, totals_table
from .common import read_local
from .exit_codes import EXIT_OK
from .messages import print_json
from .progress import working
from .streams import say


def memory(args: argparse.Namespace) -> int:
    """Prints totals, the largest buffers and a curve, or JSON."""
    module, _ = read_local(args)
    program = Program(module, module)
    found = program.memory()
    with working("compiling native code"):
        native = program.native_memory()
    if args.json:
        said = {"bytes": native.arena, "bound": native.bound, "run": native.run} if native else None
        print_json({"program": module.name, "devices": program.devices} | asdict(found) | {"native_arena": said})
        return EXIT_OK
    say(f"{module.name}: {program.devices} device{'s' * (program.devices != 1)}; bytes of each\n")
    say(totals_table(found), end="\n\n")
    say(f"largest at the peak\n{buffers_table(found.buffers, args.largest)}", end="\n\n")
    say(curve_text(found.curve))
    if native:
        say(f"\nnative arena: {native.arena:,} bytes, bound {native.bound:,}")
        say(f"native run: {native.run:,} bytes, with parameters, constants and results")
    return EXIT_OK
