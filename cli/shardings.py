"""Implements the commands about shardings: shard (all values), explain (one value), rules (all ops), picture (a
sharding).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from .. import frontends
from ..ir.diagnostics import fail
from ..ir.tools.names import suggestions
from ..report.explain import Explanation, explain, without
from ..report.picture import picture
from ..report.shardings import ShardingRow, Solved, solved
from .common import context_for, read_program, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .progress import working
from .reshard import parse_one_sharding
from .streams import say, show_program
from .tables import folded, matching, print_values, state

_MOST_CONFLICTS = 10


def shard(args: argparse.Namespace) -> int:
    """Prints a table of values with the shardings that propagation finds, and their origins."""
    module = read_program(args)
    context = context_for(args)
    with working("propagating"):
        found = solved(module, context)
    report(args, context)
    if args.text:
        show_program(module.to_text())
        return EXIT_OK
    rows = list(found.rows())
    shown = matching(rows, args.only)
    if args.only and not shown:
        known = (name for row in rows for name in (row.name, row.path) if name)
        fail(f"no value is called {' or '.join(args.only)}", help="values: " + suggestions(args.only[0], known))
    if args.json:
        print_json(_as_json(found, rows, shown))
    else:
        _table(shown, args.all)
        if not args.only:
            _conflicts(found)
        say("\n" + _summary(rows))
    return EXIT_OK


def _table(rows: Sequence[ShardingRow], every: bool) -> None:
    lines = [(row, 0) for row in rows] if every else folded(rows)
    print_values(lines)
    if len(lines) < len(rows):
        say(f"\n(+N) stands for N more values of this shape and sharding, whose names differ in numbers; --all lists "
              f"all {len(rows)}")


def _as_json(found: Solved, rows: Sequence[ShardingRow], shown: Sequence[ShardingRow]) -> dict[str, object]:
    return {
        "program": found.module.name,
        "devices": found.module.num_partitions,
        "mesh": dict(found.mesh.axes),
        "counts": _counts(rows),
        "values": [asdict(row) for row in shown],
        "conflicts": [asdict(d) for d in found.disputes()],
    }


def _counts(rows: Sequence[ShardingRow]) -> dict[str, int]:
    states = [state(row) for row in rows]
    return {"values": len(rows), "annotated": states.count("annotation"), "propagated": states.count("propagated"),
            "replicated": states.count("replicated")}  # fmt: skip


def _summary(rows: Sequence[ShardingRow]) -> str:
    counts = _counts(rows)
    share = 100 * counts["annotated"] / max(1, counts["values"])
    return (f"{counts['values']} values: {counts['annotated']} annotated ({share:.1f} %), "
            f"{counts['propagated']} sharded by propagation, {counts['replicated']} replicated")  # fmt: skip


def _conflicts(found: Solved) -> None:
    disputes = sorted(found.disputes(), key=lambda d: -d.received)
    if disputes:
        say("\nconflicts, with the bytes that each device receives for what was given up:")
    for dispute in disputes[:_MOST_CONFLICTS]:
        say(f"  {dispute}")
    if len(disputes) > _MOST_CONFLICTS:
        say(f"  .. and {len(disputes) - _MOST_CONFLICTS} smaller ones (--json lists all)")


def explain_command(args: argparse.Namespace) -> int:
    """Prints the origin of each axis of a value; with `--without`, the changes if annotations are removed."""
    module = read_program(args)
    context = context_for(args)
    with working("propagating"):
        found = explain(module, args.value, context)
    if args.without:
        changes = without(module, args.without, context)
        if args.json:
            print_json([{"before": asdict(a), "after": asdict(b)} for a, b in changes])
            return EXIT_OK
        names = {e.value for e in found}
        value = [(a, b) for a, b in changes if a.name in names]
        say(f"without {', '.join(args.without)}:")
        for before, after in value or [(None, None)]:
            same = f"  {args.value} stays as it is"
            say(same if before is None or after is None else f"  {before.name}: {before.axes} -> {after.axes}")
        say(f"  {len(changes)} values change")
        for before, after in changes:
            say(f"    {before.name}: {before.axes} -> {after.axes}")
        return EXIT_OK
    if args.json:
        print_json([asdict(e) for e in found])
    else:
        say("\n".join(_explanation_text(e) for e in found))
    return EXIT_OK


def _explanation_text(found: Explanation) -> str:
    lines = [f"{found.value}: {found.shape} {found.sharding}"]
    if found.annotated:
        lines.append("  annotated")
    if not found.axes:
        lines.append("  no axis reached it" if not found.annotated else "  without axes")
    for reason in found.axes:
        lines.append(f"  axis {reason.axis} of dimension {reason.dim}:")
        for step in reason.steps:
            name = f", {step.op_name}" if step.op_name else ""
            source = f" ({step.source}{name})" if step.source or name else ""
            how = f"through {step.via}" if step.via is not None else "annotated"
            lines.append(f"    {step.value} dimension {step.dim}, {how}{source}")
    if found.disputes:
        lines.append("  conflicts:")
        lines += [f"    {dispute}" for dispute in found.disputes]
    return "\n".join(lines)


def rules(args: argparse.Namespace) -> int:
    """Prints the sharding rule of every op, which propagation and the partitioner use."""
    module = read_program(args)
    records: list[dict[str, str]] = []
    for computation in module:
        for instruction in computation:
            leaves = [leaf for v in (*instruction.operands, instruction) for leaf in v.shape.leaves()]
            if instruction.op.is_control or not instruction.operands or not all(leaf.is_array for leaf in leaves):
                continue
            name = instruction.name if computation is module.entry else f"{computation.name}/{instruction.name}"
            rule = instruction.op.sharding_rule(instruction.call)
            records.append({"name": name, "opcode": instruction.opcode, "rule": str(rule)})
    if args.json:
        print_json(records)
    else:
        say("".join(f"{r['name']} = {r['opcode']} {r['rule']}\n" for r in records), end="")
    return EXIT_OK


def picture_command(args: argparse.Namespace) -> int:
    """Prints which devices hold which tiles of an array."""
    shape = frontends.parse_shape(args.shape)
    if not shape.is_array:
        fail(f"{shape} is not the shape of an array")
    try:
        say(picture(shape, parse_one_sharding(args.sharding, args.mesh)))
    except (KeyError, ValueError) as error:
        fail(f"bad sharding: {error}")
    return EXIT_OK
