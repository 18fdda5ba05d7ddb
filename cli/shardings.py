"""Implements the commands about shardings: shard (all values), explain (one value), rules (all ops), picture (a
sharding), reshard (the plan between two).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from functools import partial

from .. import frontends
from ..cost.presets import parse_machine
from ..ir.diagnostics import fail
from ..ir.sharding.mesh import Mesh
from ..passes.resharding.certificate import reshard
from ..report.explain import changes_text, explain, without
from ..report.minimal import minimal_annotations
from ..report.picture import picture
from ..report.progress import working, working_on_parts
from ..report.sharding_text import explanation_text, rules_of, rules_text, shardings_lines, shardings_record
from ..report.shardings import solved
from ..report.terminal import say, show_program
from ..report.work import certificate_text
from .common import context_for, report
from .exit_codes import EXIT_OK
from .messages import answer, print_json
from .reading import read_program

_STYLES = {"annotation": "1;32", "propagated": "36", "replicated": "2"}


def shard(args: argparse.Namespace) -> int:
    """Prints a table of values with the shardings that propagation finds, and their origins; with `--minimal`,
    annotations that imply all others.
    """
    module = read_program(args)
    context = context_for(args)
    if args.minimal:
        with working_on_parts("leaving annotations out") as tell:
            fewest = minimal_annotations(module, context, tell)
        return answer(args, partial(asdict, fewest), fewest.text)
    with working("propagating"):
        found = solved(module, context)
    report(args, context)
    if args.text:
        show_program(module.to_text())
    elif args.json:
        print_json(shardings_record(found, args.only))
    else:
        for state, line in shardings_lines(found, args.only, args.all):
            say(line, styled=_STYLES.get(state, ""))
    return EXIT_OK


def explain_command(args: argparse.Namespace) -> int:
    """Prints the origin of each axis of a value; with `--without`, the changes if annotations are removed."""
    module = read_program(args)
    context = context_for(args)
    with working("propagating"):
        found = explain(module, args.value, context)
    if not args.without:
        return answer(args, lambda: list(map(asdict, found)), lambda: "\n".join(map(explanation_text, found)))
    changes = without(module, args.without, context)
    return answer(args, lambda: [{"before": asdict(old), "after": asdict(new)} for old, new in changes],
                  lambda: changes_text(args.value, args.without, found, changes))  # fmt: skip


def rules(args: argparse.Namespace) -> int:
    """Prints the sharding rules of ops, which propagation and the partitioner use."""
    records = rules_of(read_program(args))
    return answer(args, lambda: records, lambda: rules_text(records, args.all))


def picture_command(args: argparse.Namespace) -> int:
    """Prints which devices hold which tiles of an array."""
    shape = frontends.parse_shape(args.shape)
    if not shape.is_array:
        fail(f"{shape} is not the shape of an array")
    try:
        show_program(f"{picture(shape, frontends.parse_array_sharding(args.sharding, args.mesh))}\n")
    except (KeyError, ValueError) as error:
        fail(f"bad sharding: {error}")
    return EXIT_OK


def reshard_command(args: argparse.Namespace) -> int:
    """Prints moves, bytes received per device, the lower bound, and peak memory."""
    shape = frontends.parse_shape(args.shape)
    if not shape.is_array or shape.is_dynamic:
        fail(f"{shape} is not the shape of an array with fixed dimensions")
    source, target = (frontends.parse_array_sharding(text, args.mesh) for text in (args.source, args.target))
    mesh = Mesh(tuple(args.mesh.items())) if args.mesh else next((s.mesh for s in (source, target) if s.mesh), None)
    source, target = (s if s.mesh else replace(s, mesh=mesh) for s in (source, target))
    found = reshard(shape, source, target, args.memory, parse_machine(args.machine, args.links, mesh))
    return answer(args, lambda: asdict(found), lambda: certificate_text(found))
