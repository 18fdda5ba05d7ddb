"""Implements the commands about shardings: shard (all values), explain (one value), rules (all ops), picture (a
sharding), reshard (the plan between two).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from .. import frontends
from ..cost.presets import parse_machine
from ..ir.diagnostics import fail
from ..ir.sharding.mesh import Mesh
from ..ir.sharding.sharding import Sharding
from ..ir.tools.names import fits, name_pattern, suggestions
from ..passes.resharding.certificate import reshard
from ..report.columns import columns
from ..report.explain import Explanation, explain, without
from ..report.minimal import MinimalAnnotations, minimal_annotations
from ..report.picture import picture
from ..report.shardings import ShardingRow, Solved, solved
from ..report.work import amount, share, times_text
from .common import context_for, read_program, report
from .exit_codes import EXIT_OK
from .messages import print_json
from .streams import say, show_program, working

_HEAD = ("value", "shape", "per device", "sharding", "work", "repeated", "because of")
_RIGHT = (4, 5)
_STYLES = {"annotation": "1;32", "propagated": "36", "replicated": "2"}
_DIGITS = re.compile(r"\d+")


def matching(rows: Iterable[ShardingRow], patterns: Sequence[str]) -> list[ShardingRow]:
    """Returns the rows whose name or path matches one of the patterns; all if there are none."""
    wanted = [name_pattern(text) for text in patterns]
    names = ((row, (row.name, row.name.partition("[")[0], row.name.rpartition("/")[2], row.path)) for row in rows)
    return [row for row, called in names if not wanted or any(fits(pattern, called) for pattern in wanted)]


def folded(rows: Iterable[ShardingRow]) -> list[tuple[ShardingRow, int]]:
    """Returns rows in order, each with the number of further rows that it represents: of the same shape and sharding,
    with names that differ in numbers only.
    """
    groups: dict[tuple[str, ...], list[ShardingRow]] = {}
    for row in rows:
        key = (_DIGITS.sub("", row.name), row.shape, row.local, row.axes, str(row.annotated))
        groups.setdefault(key, []).append(row)
    return [(group[0], len(group) - 1) for group in groups.values()]


def state(row: ShardingRow) -> str:
    """Returns the category under which a row is counted."""
    return "annotation" if row.annotated else "replicated" if row.axes == "replicated" else "propagated"


def print_values(rows: Sequence[tuple[ShardingRow, int]]) -> None:
    """Prints a table of rows, each with the number of further rows that it represents.

    The columns of work are there if a row has work, that of repeated work if a row repeats some.
    """
    kept = [i for i in range(len(_HEAD)) if i not in _RIGHT or any((r.work, r.repeated_work)[i - 4] for r, _ in rows)]
    cells = [tuple(cells[i] for i in kept) for cells in (_HEAD, *(_cells(row, more) for row, more in rows))]
    styles = ["", *(_STYLES[state(row)] for row, _ in rows)]
    for style, line in zip(styles, columns(cells, [i in _RIGHT for i in kept]).splitlines(), strict=True):
        say(line, styled=style)


def _cells(row: ShardingRow, more: int) -> tuple[str, ...]:
    name = f"{row.name} (+{more})" if more else row.name
    work = amount(row.work) if row.work else ""
    return name, row.shape, row.local, row.axes, work, share(row.repeated_work, row.work) if work else "", row.why


_MOST_CONFLICTS = 10


def shard(args: argparse.Namespace) -> int:
    """Prints a table of values with the shardings that propagation finds, and their origins."""
    module = read_program(args)
    context = context_for(args)
    if args.minimal:
        with working("leaving annotations out"):
            _minimal(minimal_annotations(module, context), args.json)
        return EXIT_OK
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


def _minimal(found: MinimalAnnotations, as_json: bool) -> None:
    """Prints annotations that imply all others."""
    if as_json:
        print_json(asdict(found))
        return
    if found.values:
        say(columns([("value", "annotation"), *found.values], [False, False]) + "\n")
    say(f"{len(found.values)} of {found.count} annotations imply the others")


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


def reshard_command(args: argparse.Namespace) -> int:
    """Prints moves, bytes received per device, the lower bound, and peak memory."""
    shape = frontends.parse_shape(args.shape)
    if not shape.is_array or shape.is_dynamic:
        fail(f"{shape} is not the shape of an array with fixed dimensions")
    source, target = (parse_one_sharding(text, args.mesh) for text in (args.source, args.target))
    mesh = Mesh(tuple(args.mesh.items())) if args.mesh else next((s.mesh for s in (source, target) if s.mesh), None)
    source, target = (s if s.mesh else replace(s, mesh=mesh) for s in (source, target))
    found = reshard(shape, source, target, args.memory, parse_machine(args.machine, args.links, mesh))
    if args.json:
        print_json(asdict(found))
        return EXIT_OK
    for move in found.moves or ("nothing to do",):
        say(f"  {move}")
    ratio = f"{found.ratio:.2f}" if found.bound_bytes else "-"
    say(f"{found.collectives} collectives; {found.received_bytes} bytes received per device, "
          f"lower bound {found.bound_bytes}, ratio {ratio}; peak memory {found.peak_bytes} bytes")
    say(times_text(found))
    return EXIT_OK


def parse_one_sharding(text: str, mesh: dict[str, int] | None) -> Sharding:
    """Parses a sharding in HLO text; with `--mesh` also just the dimensions, `[{'x'}, {}]`."""
    if text.lstrip().startswith("["):
        if mesh is None:
            fail(f"{text} names axes of a mesh", help="give it with --mesh x=2,y=4")
        text = f"{{{Mesh(tuple(mesh.items()))}, {text}}}"
    found = frontends.parse_sharding(text)
    if not isinstance(found, Sharding):
        fail(f"{text} is the sharding of a tuple")
    return found
