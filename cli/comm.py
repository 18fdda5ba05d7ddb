"""Implements `hloom comm FILE`: the collectives of the partitioned program and its contractions, largest first; and
`hloom memory FILE`: its live memory, the peak, and the buffers live at the peak.

An unpartitioned program is partitioned first. A per-device program (Hloom's own output, or XLA's print of a compiled
program) is used unchanged.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..cost.collectives import collectives
from ..cost.presets import parse_machine
from ..cost.work import contractions
from ..driver.program import Program
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.tools.spmd import is_per_device
from ..passes.base import PassContext
from ..passes.resharding.certificate import ProgramCertificate
from ..report.collectives import collective_record, collectives_record, collectives_table, summary
from ..report.memory import buffers_table, curve_text, totals_table
from ..report.progress import working
from ..report.terminal import say
from ..report.turned import Turned, close_decisions, remark_close, turned_table, what_if
from ..report.work import certificate_record, times_text, work_record, work_summary, work_table
from .common import partitioned, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program


def comm(args: argparse.Namespace) -> int:
    """Prints a table with totals per kind, or JSON."""
    whole = read_program(args)
    module, context = partitioned(args, whole)
    decisions = _decisions(args, whole, context)
    certificate = ProgramCertificate.of(context.reshardings, module.num_partitions, context.machine)
    found = sorted(collectives(module), key=lambda c: -c.sent_bytes)
    work = contractions(module)
    if args.json:
        rows = {"collectives": [collective_record(c) for c in found]}
        print_json(collectives_record(module, found) | rows | work_record(work)
                   | {"reshardings": certificate_record(certificate)}
                   | {key: [asdict(t) for t in some] for key, some in decisions.items()})
        return EXIT_OK
    if found:
        say(collectives_table(found, args.all), end="\n\n")
    say(f"{module.name}: {module.devices} device{'s' * (module.devices != 1)}; {summary(found)}")
    if work:
        say(f"\n{work_table(work, args.all)}\n\n{module.name}: {work_summary(work)}")
    if certificate.seconds:
        say(f"\nreshardings, each once; {times_text(certificate)}")
    if (turned := decisions.get("what_if")) is not None:
        say(f"\n{args.what_if} turns {len(turned) or 'no'} decision{'s' * (len(turned) != 1)}")
        say(f"\n{turned_table(turned)}" if turned else "", end="\n" * bool(turned))
    return EXIT_OK


def _decisions(args: argparse.Namespace, whole: Module, context: PassContext) -> dict[str, list[Turned]]:
    """Returns the decisions that --what-if and --close ask for, by their names in JSON, and remarks on close ones."""
    found: dict[str, list[Turned]] = {}
    machine = parse_machine(args.what_if) if args.what_if else None
    for option in (*["--what-if"] * bool(args.what_if), *["--close"] * args.close):
        if is_per_device(whole):
            fail(f"{option} compares how a program is divided, and {whole.name} is already the program of a device")
    if machine is not None:
        with working(f"partitioning for {args.what_if}"):
            found["what_if"] = what_if(whole, context, machine)
    if args.close:
        with working("partitioning with other times"):
            found["close"] = close_decisions(whole, context)
        told = PassContext()
        remark_close(found["close"], told.diagnostics)
        report(args, told)
    return found


def memory(args: argparse.Namespace) -> int:
    """Prints totals, the largest buffers and a curve, or JSON."""
    module, _ = partitioned(args, read_program(args))
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
