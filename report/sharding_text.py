"""Writes shardings for people: tables of values, why a value has its sharding, and the rules of ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict

from ..ir.graph.module import Module
from ..ir.grouping import group_by, numberless
from ..ir.tools.names import called
from .columns import columns
from .explain import Explanation
from .shardings import ShardingRow, Solved
from .work import amount, share

_HEAD = ("value", "shape", "sharding", "per device", "work", "repeated", "because of")
_RIGHT = (4, 5)
_MOST_CONFLICTS = 10
_MANY = 60  # rows, of which a reader loses track
_DIGITS = re.compile(r"\d+")


def rows_called(rows: Sequence[ShardingRow], patterns: Sequence[str]) -> list[ShardingRow]:
    """Returns the rows whose name or path matches one of the patterns; all if there are none. Raises CompileError if
    none matches.
    """
    return called(rows, patterns,
                  lambda row: (row.name, row.name.partition("[")[0], row.name.rpartition("/")[2], row.path),
                  lambda row: filter(None, (row.name, row.path)))  # fmt: skip


def folded(rows: Sequence[ShardingRow]) -> list[tuple[ShardingRow, int]]:
    """Returns rows in order, each with the number of further rows that it represents: of the same shape and sharding,
    with names that differ in numbers only. If these are many, values of one size and sharding are one, whatever their
    names, but for parameters and what takes work.
    """
    found = _grouped(rows, _called)
    if len(found) > _MANY:
        found = _grouped(rows, lambda row: _called(row) if row.parameter or row.work else _sized(row))
    return found


def _grouped(rows: Iterable[ShardingRow], key: Callable[[ShardingRow], Hashable]) -> list[tuple[ShardingRow, int]]:
    return [(group[0], len(group) - 1) for group in group_by(rows, key).values()]


def _called(row: ShardingRow) -> Hashable:
    return _DIGITS.sub("", row.name), row.shape, row.local, row.axes, row.annotated


def _sized(row: ShardingRow) -> Hashable:
    return row.shape.partition("[")[2], row.axes, row.annotated


def state(row: ShardingRow) -> str:
    """Returns the category under which a row is counted."""
    return "annotation" if row.annotated else "replicated" if row.axes == "replicated" else "propagated"


def values_table(rows: Sequence[tuple[ShardingRow, int]]) -> list[tuple[str, str]]:
    """Returns the lines of a table of rows, each with its state, given the number of further rows that it represents.

    The columns of work are there if a row has work, that of repeated work if a row repeats some.
    """
    kept = [i for i in range(len(_HEAD)) if i not in _RIGHT or any((r.work, r.repeated_work)[i - 4] for r, _ in rows)]
    cells = [tuple(cells[i] for i in kept) for cells in (_HEAD, *(_cells(row, more) for row, more in rows))]
    states = ["", *(state(row) for row, _ in rows)]
    return list(zip(states, columns(cells, [i in _RIGHT for i in kept]).splitlines(), strict=True))


def shardings_lines(found: Solved, only: Sequence[str] = (), every: bool = False) -> Iterator[tuple[str, str]]:
    """Yields the lines of a table of the values that the patterns `only` fit, each with its state, and of counts and
    conflicts, which have none. Unless `every` row is asked for, those that `folded` joins are one. Raises CompileError
    if no value fits.
    """
    rows = list(found.rows())
    shown = rows_called(rows, only)
    lines = [(row, 0) for row in shown] if every else folded(shown)
    yield from values_table(lines)
    if len(lines) < len(shown):
        yield "", f"\n(+N) stands for N more values of this size and sharding; --all lists all {len(shown)}"
    if not only and (conflicts := conflicts_text(found)):
        yield "", f"\n{conflicts}"
    yield "", f"\n{counts_text(rows)}"


def _cells(row: ShardingRow, more: int) -> tuple[str, ...]:
    name = f"{row.name} (+{more})" if more else row.name
    work = amount(row.work) if row.work else ""
    return name, row.shape, row.axes, row.local, work, share(row.repeated_work, row.work) if work else "", row.why


def counts_of(rows: Sequence[ShardingRow]) -> dict[str, int]:
    """Counts rows by state."""
    states = [state(row) for row in rows]
    return {"values": len(rows), "annotated": states.count("annotation"), "propagated": states.count("propagated"),
            "replicated": states.count("replicated")}  # fmt: skip


def counts_text(rows: Sequence[ShardingRow]) -> str:
    """Tells how many values are annotated, sharded by propagation, and replicated."""
    counts = counts_of(rows)
    percent = 100 * counts["annotated"] / max(1, counts["values"])
    return (f"{counts['values']} values: {counts['annotated']} annotated ({percent:.1f} %), "
            f"{counts['propagated']} sharded by propagation, {counts['replicated']} replicated")  # fmt: skip


def explanation_text(found: Explanation) -> str:
    """Returns the reasons of a sharding, axis by axis."""
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


def rules_of(module: Module) -> list[dict[str, str]]:
    """Returns name, opcode and sharding rule of every op on arrays, which propagation and the partitioner use."""
    records: list[dict[str, str]] = []
    for computation in module:
        for instruction in computation:
            leaves = [leaf for v in (*instruction.operands, instruction) for leaf in v.shape.leaves()]
            if instruction.op.is_control or not instruction.operands or not all(leaf.is_array for leaf in leaves):
                continue
            name = instruction.name if computation is module.entry else f"{computation.name}/{instruction.name}"
            rule = instruction.op.sharding_rule(instruction.call)
            records.append({"name": name, "opcode": instruction.opcode, "rule": str(rule)})
    return records


def rules_text(records: Sequence[dict[str, str]], every: bool = False) -> str:
    """Returns one line for each opcode and rule, with the number of further ops that have both; unless `every` op is
    asked for.
    """
    groups = group_by(records, lambda r: id(r) if every else (r["opcode"], r["rule"]))
    return "\n".join(
        f"{first['name']}{f' (+{len(others)})' * bool(others)} = {first['opcode']} {first['rule']}"
        for first, *others in groups.values()
    )


def conflicts_text(found: Solved) -> str:
    """Returns the conflicts that cost most, those that differ in numbers of names only as one line; empty if there are
    none.
    """
    groups = group_by(found.disputes(), lambda d: f"{numberless(str(d))} {d.received}")
    if not groups:
        return ""
    ordered = sorted(groups.values(), key=lambda group: -sum(d.received for d in group))
    lines = ["conflicts, with the bytes that each device receives for what was given up:"]
    lines += [f"  {group[0]}" + (f" (+{len(group) - 1})" if len(group) > 1 else "")
              for group in ordered[:_MOST_CONFLICTS]]  # fmt: skip
    if len(ordered) > _MOST_CONFLICTS:
        lines.append(f"  .. and {sum(map(len, ordered[_MOST_CONFLICTS:]))} smaller ones (--json lists all)")
    return "\n".join(lines)


def shardings_record(found: Solved, only: Sequence[str] = ()) -> dict[str, object]:
    """Returns the values that the patterns `only` fit as JSON, the counts of all, and the conflicts. Raises
    CompileError if no value fits.
    """
    rows = list(found.rows())
    return {
        "program": found.module.name,
        "devices": found.module.num_partitions,
        "mesh": dict(found.mesh.axes),
        "counts": counts_of(rows),
        "values": [asdict(row) for row in rows_called(rows, only)],
        "conflicts": [asdict(d) for d in found.disputes()],
    }
