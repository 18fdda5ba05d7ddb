"""Explains the sharding of a value: for each axis the path from the annotation to the value, and the conflicts.

`explain` solves the propagation of a program and reads the causes from its leaves (`causes.trace`). `without` solves it
again without some annotations and reports which values change. Neither changes the module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, clone_module
from ..ir.sharding.sharding import Sharding
from ..ir.tools.names import fits, name_pattern, names_of
from ..passes.base import PassContext
from ..passes.propagation.causes import trace
from ..passes.propagation.values import Cause, Leaf
from .shardings import Dispute, ShardingRow, Solved, short, solved


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One value on the path of an axis: its name and dimension, and the op `via` which the axis came (None: an
    annotation).

    `source` is `file:line`, `op_name` the frontend's name of the op, as far as known.
    """

    value: str
    dim: int
    opcode: str
    via: str | None
    op_name: str
    source: str


@dataclass(frozen=True, slots=True)
class AxisReason:
    """The origin of an axis of a dimension: steps from the value back to the annotation."""

    dim: int
    axis: str
    steps: tuple[TraceStep, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sharding of one value and its reasons."""

    value: str
    shape: str
    sharding: str
    annotated: bool
    axes: tuple[AxisReason, ...]
    disputes: tuple[Dispute, ...]


@checked
def explain(module: Module, value: str, context: PassContext | None = None) -> list[Explanation]:
    """Explains the sharding of the value called `value`; one entry per array in it (`name[1]` means one of them).

    JAX's paths (`params['w']`) and patterns (`layer*`) are names, too. Raises CompileError if there is no such value,
    or if the program cannot be propagated.
    """
    found = solved(clone_module(module), context or PassContext())
    return [_explanation(found, name, leaf, sharding) for name, leaf, sharding in _chosen(found, value)]


def without(
    module: Module, annotations: Sequence[str], context: PassContext | None = None
) -> list[tuple[ShardingRow, ShardingRow]]:
    """Returns the values whose sharding changes when these values are not annotated: rows before and after.

    Raises CompileError if one of them does not exist or is not annotated.
    """
    context = context or PassContext()
    devices = solved(before := clone_module(module), context)
    after = clone_module(module)
    for name in annotations:
        _drop(after, name)
    changed = replace(context, num_devices=before.num_partitions)
    rows = {row.name: row for row in solved(after, changed).rows()}
    pairs = ((row, rows[row.name]) for row in devices.rows() if row.name in rows)
    return [(old, new) for old, new in pairs if old.axes != new.axes]


def _drop(module: Module, name: str) -> None:
    """Removes the annotation from an instruction."""
    computation_name, _, plain = name.rpartition("/")
    found = [i for c in module for i in c if i.name == plain and computation_name in ("", c.name)]
    pattern = name_pattern(name)
    found = found or [i for c in module for i in c if fits(pattern, names_of(i))]
    annotated = [i for i in found if i.annotation is not None]
    if not annotated:
        known = sorted(n for c in module for i in c if i.annotation is not None for n in names_of(i))
        what = "is not annotated" if found else "is no value of the program"
        fail(f"'{name}' {what}", found[0].location if found else None, help=_nearest(plain, known, "annotated"))
    for instruction in annotated:
        instruction.sharding = instruction.shardy = None


def _nearest(name: str, known: Sequence[str], what: str) -> str:
    close = difflib.get_close_matches(name, known, 3, 0.4) or list(known[:5])
    return f"{what}: " + (", ".join(close) or "nothing")


def _chosen(found: Solved, value: str) -> list[tuple[str, Leaf, Sharding]]:
    chosen = found.called(value)
    if not chosen:
        paths = (path for p in found.module.entry.parameters for path in names_of(p))
        fail(f"there is no value '{value}'", help=_nearest(value, [*paths, *(n[0] for n in found.named())], "values"))
    return chosen


def _explanation(found: Solved, name: str, leaf: Leaf, sharding: Sharding) -> Explanation:
    return Explanation(
        name, str(leaf.shape.without_layout()), short(sharding), leaf.annotated,
        tuple(_reasons(found, leaf, sharding)), tuple(found.disputes(leaf)))


def _reasons(found: Solved, leaf: Leaf, sharding: Sharding) -> Iterator[AxisReason]:
    mesh = sharding.mesh
    for dim, part in enumerate(sharding.dims):
        for ref in part.axes:
            assert mesh is not None
            digit = mesh.digits(ref)[0]
            steps = tuple(
                _trace_step(found.name(at), place, at.instruction, cause)
                for at, place, cause in trace(leaf, dim, digit)
            )
            yield AxisReason(dim, ref.text(""), steps)


def _trace_step(name: str, dim: int, instruction: Instruction, cause: Cause | None) -> TraceStep:
    via = cause.via.name if cause is not None else None
    return TraceStep(name, dim, instruction.opcode, via, _op_name(instruction), _source(instruction))


def _op_name(instruction: Instruction) -> str:
    return instruction.metadata.op_name if instruction.metadata is not None else ""


def _source(instruction: Instruction) -> str:
    metadata = instruction.metadata
    if metadata is not None and metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    return str(instruction.location) if instruction.location is not None else ""


def changes_text(
    value: str, removed: Sequence[str], found: Sequence[Explanation],
    changes: Sequence[tuple[ShardingRow, ShardingRow]],
) -> str:  # fmt: skip
    """Returns how the explained values, asked for by `value`, and all others change without the annotations `removed`.
    """
    names = {e.value for e in found}
    lines = [f"{old.name}: {old.axes} -> {new.axes}" for old, new in changes]
    own = [line for line, (old, _) in zip(lines, changes, strict=True) if old.name in names]
    return "\n".join((
        f"without {', '.join(removed)}:", *(f"  {line}" for line in own or [f"{value} stays as it is"]),
        f"  {len(changes)} values change", *(f"    {line}" for line in lines),
    ))  # fmt: skip
