"""Implements `hloom memory FILE`: live memory of the program per device, its peak, and what lives there.

An unpartitioned program is partitioned first. A per-device program (Hloom's own output, or XLA's print of a compiled
program) is used unchanged.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..cost.memory import LiveMemory, live_memory
from ..ir.diagnostics import CompileError
from ..ir.graph.module import Module
from ..ir.tools.spmd import is_per_device
from ..passes.pipelines import partition
from ..report.memory import buffers_table, curve_text, totals_table
from .backends import NATIVE, Backend, has_native_code
from .common import context_for, read_program, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .progress import working
from .streams import say


def memory(args: argparse.Namespace) -> int:
    """Prints totals, the largest buffers and a curve, or JSON."""
    module = read_program(args)
    context = context_for(args)
    if not is_per_device(module):
        with working("partitioning"):
            partition(module, context)
    report(args, context)
    found = live_memory(module)
    arena = _native_arena(module)
    devices = module.num_partitions * module.replica_count
    if args.json:
        native = {"bytes": arena[0], "bound": arena[1], "run": _run_bytes(found, arena[0])} if arena else None
        print_json({"program": module.name, "devices": devices} | asdict(found) | {"native_arena": native})
        return EXIT_OK
    say(f"{module.name}: {devices} device{'s' * (devices != 1)}; bytes of each\n")
    say(totals_table(found), end="\n\n")
    say(f"largest at the peak\n{buffers_table(found.buffers, args.largest)}", end="\n\n")
    say(curve_text(found.curve))
    if arena:
        say(f"\nnative arena: {arena[0]:,} bytes, bound {arena[1]:,}")
        say(f"native run: {_run_bytes(found, arena[0]):,} bytes, with parameters, constants and results")
    return EXIT_OK


def _run_bytes(found: LiveMemory, arena: int) -> int:
    """Returns the bytes that the arrays of a native run take: results lie beside the arena, or in donated parameters.
    """
    return found.parameters + found.constants + arena + found.results - found.aliased


def _native_arena(module: Module) -> tuple[int, int] | None:
    """Returns the size of the native backend's arenas on a device, and the least that any layout needs; None if there
    is no native code, or the program cannot run here.
    """
    from ..ir.tools.process_grid import ProcessGrid
    from ..runtime.native.table import arenas
    from ..runtime.plan.executable import Executable

    if not has_native_code():
        return None
    try:
        with working("compiling native code"):
            backend = Backend(NATIVE)
            fused = backend.prepared(module)
            found = arenas(Executable(fused, ProcessGrid.of(fused), backend.kernels()).arranged)
    except CompileError:
        return None  # values that are too large, or omitted from the text: memory is known all the same
    return sum(a.size for a in found), sum(a.bound for a in found)
