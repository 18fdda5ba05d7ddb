"""Implements `hloom comm FILE`: the collectives of the partitioned program and its contractions, largest first; and
`hloom memory FILE`: its live memory, the peak, and the buffers live at the peak.

An unpartitioned program is partitioned first. A per-device program (Hloom's own output, or XLA's print of a compiled
program) is used unchanged.
"""

from __future__ import annotations

import argparse
from functools import partial

from ..cost.presets import parse_machine
from ..driver.memory import MemoryReport
from ..driver.program import Program
from ..ir.diagnostics import Diagnostics, fail
from ..ir.tools.spmd import is_per_device
from ..report.progress import working
from ..report.traffic import TrafficReport
from ..report.turned import close_decisions, remark_close, what_if
from .common import partitioned
from .messages import answer, tell_found
from .reading import read_program


def comm(args: argparse.Namespace) -> int:
    """Prints a table with totals per kind, or JSON."""
    whole = read_program(args)
    module, context = partitioned(args, whole)
    machine = parse_machine(args.what_if) if args.what_if else None
    for option in (*["--what-if"] * bool(args.what_if), *["--close"] * args.close):
        if is_per_device(whole):
            fail(f"{option} compares how a program is divided, and {whole.name} is already the program of a device")
    found = TrafficReport.of(module, context)
    if machine is not None:
        with working(f"partitioning for {args.what_if}"):
            found.other, found.turned = args.what_if, what_if(whole, context, machine)
    if args.close:
        with working("partitioning with other times"):
            found.close = close_decisions(whole, context)
        told = Diagnostics()
        remark_close(found.close, told)
        tell_found(args, told.found)
    return answer(args, found.record, partial(found.text, args.all))


def memory(args: argparse.Namespace) -> int:
    """Prints totals, the largest buffers and a curve, or JSON."""
    module, _ = partitioned(args, read_program(args))
    found = MemoryReport.of(Program(module, module), working)
    return answer(args, found.record, partial(found.text, args.largest))
