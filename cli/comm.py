"""Implements `hloom comm FILE`: the collectives of the partitioned program and its contractions, largest first; and
`hloom memory FILE`: its live memory, the peak, and the buffers live at the peak.

An unpartitioned program is partitioned first. A per-device program (Hloom's own output, or XLA's print of a compiled
program) is used unchanged.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from ..cost.collectives import Collective, collectives
from ..cost.presets import parse_machine
from ..cost.work import Contraction, contractions
from ..driver.program import Program
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.tools.spmd import is_per_device
from ..passes.base import PassContext
from ..passes.resharding.certificate import ProgramCertificate
from ..report.collectives import by_kind, collectives_table, summary
from ..report.memory import buffers_table, curve_text, totals_table
from ..report.turned import Turned, close_decisions, turned_table, what_if
from ..report.work import times_text, work_summary, work_table
from .common import partitioned, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .reading import read_program
from .streams import say, working


def comm(args: argparse.Namespace) -> int:
    """Prints a table with totals per kind, or JSON."""
    whole = read_program(args)
    module, context = partitioned(args, whole)
    turned, close = _turned(args, whole, context), _close(args, whole, context)
    certificate = ProgramCertificate.of(context.reshardings, module.num_partitions, context.machine)
    found = sorted(collectives(module), key=lambda c: -c.sent_bytes)
    work = contractions(module)
    if args.json:
        print_json(collectives_json(module, found) | {"collectives": [_record(c) for c in found]} | _work_json(work)
                   | {"reshardings": _certificate_json(certificate)}
                   | {key: [asdict(t) for t in found] for key, found in (("what_if", turned), ("close", close))
                      if found is not None})  # fmt: skip
        return EXIT_OK
    if found:
        say(collectives_table(found, args.all), end="\n\n")
    say(f"{module.name}: {module.devices} device{'s' * (module.devices != 1)}; {summary(found)}")
    if work:
        say(f"\n{work_table(work, args.all)}\n\n{module.name}: {work_summary(work)}")
    if certificate.seconds:
        say(f"\nreshardings, each once; {times_text(certificate)}")
    if turned is not None:
        say(f"\n{args.what_if} turns {len(turned) or 'no'} decision{'s' * (len(turned) != 1)}")
        say(f"\n{turned_table(turned)}" if turned else "", end="\n" * bool(turned))
    return EXIT_OK


def _turned(args: argparse.Namespace, whole: Module, context: PassContext) -> list[Turned] | None:
    """Returns the decisions that the machine of --what-if turns; None if none is asked for."""
    if not args.what_if:
        return None
    machine = parse_machine(args.what_if)
    _refuse_per_device(whole, "--what-if")
    with working(f"partitioning for {args.what_if}"):
        return what_if(whole, context, machine)


def _close(args: argparse.Namespace, whole: Module, context: PassContext) -> list[Turned] | None:
    """Remarks on the decisions that --close asks for, and returns them; None if it was not given."""
    if not args.close:
        return None
    _refuse_per_device(whole, "--close")
    with working("partitioning with other times"):
        found = close_decisions(whole, context)
    told = PassContext()
    for t in found:
        told.diagnostics.remark(f"close: {t.here} for {t.op}, in place of {t.there}: the times differ by less than "
                                "the error of forecasts", category="close", cost=t.bytes)  # fmt: skip
    report(args, told)
    return found


def _refuse_per_device(module: Module, option: str) -> None:
    if is_per_device(module):
        fail(f"{option} compares how a program is divided, and {module.name} is already the program of a device")


def collectives_json(module: Module, found: Sequence[Collective]) -> dict[str, object]:
    """Returns the totals of a program's collectives."""
    return {
        "program": module.name,
        "devices": module.devices,
        "sent_bytes": sum(c.sent_bytes for c in found),
        "exact": all(c.exact for c in found),
        "kinds": {t.kind: {k: v for k, v in asdict(t).items() if k != "kind"} for t in by_kind(found)},
    }


def _work_json(found: Sequence[Contraction]) -> dict[str, object]:
    fields = [(c, asdict(c)) for c in sorted(found, key=lambda c: -c.work)]
    return {
        "work": sum(c.work for c in found),
        "repeated_work": sum(c.repeated_work for c in found),
        "contractions": [
            f | {"runs": f.pop("count"), "work": c.work, "repeated_work": c.repeated_work} for c, f in fields
        ],
    }


def _certificate_json(found: ProgramCertificate) -> dict[str, object]:
    return {
        "count": len(found.reshardings), "machine": found.machine, "seconds": found.seconds,
        "bound_seconds": found.bound_seconds, "received_bytes": found.received_bytes, "bound_bytes": found.bound_bytes,
    }  # fmt: skip


def _record(collective: Collective) -> dict[str, object]:
    fields: dict[str, object] = asdict(collective)
    return fields | {"runs": fields.pop("count"), "sent_bytes": collective.sent_bytes}


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
