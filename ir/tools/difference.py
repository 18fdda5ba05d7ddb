"""Structural comparison of two programs, ignoring names and irrelevant order.

Compares computations from their roots and side effects towards the operands: instructions correspond if their users do.
Ignores names, metadata, unused instructions, the order of instructions unless both modules are scheduled, channel
numbers (only their equality counts), the syntax of equivalent shardings and replica groups, layouts that one side
omits, and values that both sides omit. Skips the operands of instructions whose ops differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from ..graph.attributes import attribute_fields
from ..graph.computation import Computation
from ..graph.instruction import FrontendAttributes, Instruction
from ..graph.module import Module
from ..sharding.digit import product
from ..sharding.replica_groups import ExplicitGroups, IotaGroups, MeshGroups, ReplicaGroups, enumerate_groups
from ..sharding.sharding import Sharding, leaf_shardings
from ..types.literal import Literal
from ..types.shape import Shape
from .printer import value_text

SHARDY_KEY = "xla.sdy.sharding"
CHANNEL = "channel_id"
ENUMERATED = 1 << 20  # groups over more devices are compared as text


@dataclass(frozen=True)
class ModuleDifference:
    """One difference: its description, the names of the computations, and the instructions on both sides (None if it
    concerns the computation or the module).
    """

    what: str
    computations: tuple[str, str]
    left: Instruction | None = None
    right: Instruction | None = None


def differences(left: Module, right: Module) -> list[ModuleDifference]:
    """Returns all independent differences, the entry's first, within a computation in the order of `left`."""
    found = [ModuleDifference(what, ("", "")) for what in _headers(left, right)]
    return found + list(_Comparison(left, right).run())


def _headers(left: Module, right: Module) -> Iterator[str]:
    for name in ("num_partitions", "replica_count", "is_scheduled", "alias_passthrough_params", "stage"):
        a, b = getattr(left, name), getattr(right, name)
        if a != b:
            yield f"{name}: {value_text(a)}, {value_text(b)}"
    for name in ("input_output_alias", "buffer_donor"):
        a, b = (re.sub(r"\s", "", getattr(m, name)) for m in (left, right))
        if a != b:
            yield f"{name}: {a or 'none'}, {b or 'none'}"


# Two instructions to pair up, the users whose operands they are, and a description of the operand.
Visit = tuple[Instruction, Instruction, tuple[Instruction, Instruction, str] | None]


class _Comparison:
    def __init__(self, left: Module, right: Module) -> None:
        self.devices = max(left.devices, 1)
        self.scheduled = left.is_scheduled and right.is_scheduled
        self.pending: list[tuple[Computation, Computation]] = [(left.entry, right.entry)]
        self.seen = set(self.pending)
        self.channels: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def run(self) -> Iterator[ModuleDifference]:
        for pair in self.pending:  # grows while we go through it
            yield from self.computations(*pair)

    def computations(self, left: Computation, right: Computation) -> list[ModuleDifference]:
        names = (left.name, right.name)
        found: list[ModuleDifference] = []
        pairs: list[tuple[Instruction, Instruction]] = []
        kinds = (("parameters", left.parameters, right.parameters), ("side effects", _effects(left), _effects(right)))
        for kind, a, b in kinds:
            if len(a) != len(b):
                found.append(ModuleDifference(f"number of {kind}: {len(a)}, {len(b)}", names))
            pairs += zip(a, b, strict=False)
        if left.execution_thread != right.execution_thread:
            found.append(ModuleDifference(f"thread: '{left.execution_thread}', '{right.execution_thread}'", names))
        pairs.append((left.root, right.root))
        partners = self.walk([(a, b, None) for a, b in reversed(pairs)], names, found)
        places = {i: n for n, i in enumerate(left)}
        if self.scheduled and not found:
            found += _order(partners, right, names)
        found.sort(key=lambda d: -1 if d.left is None else places.get(d.left, -1))
        return found

    def walk(
        self, stack: list[Visit], names: tuple[str, str], found: list[ModuleDifference]
    ) -> dict[Instruction, Instruction]:
        """Pairs up the operands of the pairs on the stack, last in first out."""
        forward: dict[Instruction, Instruction] = {}
        backward: dict[Instruction, Instruction] = {}
        while stack:
            a, b, use = stack.pop()
            if forward.get(a) is b:
                continue
            if a in forward or b in backward:
                user, other, place = use or (a, b, "place")
                partner = f"{a.name} is {forward[a].name}" if a in forward else f"{backward[b].name} is {b.name}"
                what = f"{place}: {a.name}, {b.name}, but elsewhere {partner}"
                found.append(ModuleDifference(what, names, user, other))
                continue
            forward[a], backward[b] = b, a
            what = "; ".join(self.instructions(a, b))
            found += [ModuleDifference(what, names, a, b)] if what else []
            if a.op is b.op:
                operands = enumerate(zip(a.operands, b.operands, strict=False))
                stack += [(x, y, (a, b, f"operand {n}")) for n, (x, y) in operands][::-1]
                before = zip(a.control_predecessors, b.control_predecessors, strict=False)
                stack += [(x, y, (a, b, "control predecessor")) for x, y in before]
        return forward

    def instructions(self, a: Instruction, b: Instruction) -> Iterator[str]:
        if a.op is not b.op:
            yield f"opcode: {a.opcode}, {b.opcode}"
            return
        if not _same_shape(a.shape, b.shape):
            yield f"shape: {a.shape}, {b.shape}"
        if len(a.operands) != len(b.operands):
            yield f"number of operands: {len(a.operands)}, {len(b.operands)}"
        for name in attribute_fields(a.op.attributes):
            x, y = getattr(a.attributes, name), getattr(b.attributes, name)
            if not self.same_value(name, x, y):
                yield f"{name}: {_shown(x)}, {_shown(y)}"
        if not _same_sharding(a, b):
            yield f"sharding: {a.annotation or 'none'}, {b.annotation or 'none'}"
        if _frontend(a.frontend_attributes) != _frontend(b.frontend_attributes):
            yield "frontend_attributes"
        if a.backend_config != b.backend_config:
            yield "backend_config"
        if a.other != b.other:
            yield ", ".join(dict.fromkeys(name for name, _ in {*a.other} ^ {*b.other}))
        if len(a.control_predecessors) != len(b.control_predecessors):
            yield f"number of control predecessors: {len(a.control_predecessors)}, {len(b.control_predecessors)}"

    def same_value(self, name: str, a: Any, b: Any) -> bool:
        if isinstance(a, Computation) and isinstance(b, Computation):
            if (a, b) not in self.seen:
                self.seen.add((a, b))
                self.pending.append((a, b))
            return True
        if isinstance(a, tuple) and isinstance(b, tuple):
            xs, ys = cast("tuple[Any, ...]", a), cast("tuple[Any, ...]", b)
            return len(xs) == len(ys) and all(self.same_value("", x, y) for x, y in zip(xs, ys, strict=True))
        if isinstance(a, Shape) and isinstance(b, Shape):
            return _same_shape(a, b)
        if name == CHANNEL and isinstance(a, int) and isinstance(b, int):
            there, back = self.channels
            return there.setdefault(a, b) == b and back.setdefault(b, a) == a
        if isinstance(a, Literal) and isinstance(b, Literal):
            return a.may_equal(b)
        groups = (ExplicitGroups, IotaGroups, MeshGroups)
        if isinstance(a, groups) and isinstance(b, groups):
            return _same_groups(a, b, self.devices)
        return bool(a == b)


def _effects(computation: Computation) -> list[Instruction]:
    """Returns the instructions with side effects that the root does not depend on, in order."""
    needed = computation.reachable()
    return [i for i in computation if i.has_effect() and i not in needed]


def _order(
    partners: dict[Instruction, Instruction], right: Computation, names: tuple[str, str]
) -> Iterator[ModuleDifference]:
    """Yields the first instruction whose position in the schedule differs."""
    places = {i: n for n, i in enumerate(right)}
    if not partners:
        return
    parent = next(iter(partners)).parent
    last = -1
    for a in parent or ():
        b = partners.get(a)
        if b is not None and places[b] < last:
            yield ModuleDifference("place in the schedule", names, a, b)
            return
        last = places[b] if b is not None else last


def _same_shape(a: Shape, b: Shape) -> bool:
    if not a.compatible(b):
        return False
    pairs = zip(a.leaves(), b.leaves(), strict=True)
    return all(x.layout is None or y.layout is None or x.layout == y.layout for x, y in pairs)


def _same_groups(a: ReplicaGroups, b: ReplicaGroups, devices: int) -> bool:
    if a == b:
        return True
    try:
        return devices <= ENUMERATED and enumerate_groups(a, devices) == enumerate_groups(b, devices)
    except (KeyError, ValueError):
        return False


def _same_sharding(a: Instruction, b: Instruction) -> bool:
    left, right = a.annotation, b.annotation
    if left == right or left is None or right is None:
        return left == right
    leaves = list(a.shape.leaves()) or [a.shape]
    if a.shape.num_leaves != b.shape.num_leaves:
        return True  # the shapes differ, which has been reported
    try:
        pairs = zip(leaf_shardings(left, len(leaves)), leaf_shardings(right, len(leaves)), leaves, strict=True)
        return all(x == y or (x and y and sharding_key(x, s.rank) == sharding_key(y, s.rank)) for x, y, s in pairs)
    except (KeyError, ValueError):
        return False


def sharding_key(sharding: Sharding, rank: int) -> tuple[Any, ...]:
    """Returns a key of a sharding's meaning for an array of this rank, independent of its syntax.

    It has the tiling, the manual devices, and all properties that affect propagation. Raises KeyError or ValueError for
    axes that the mesh does not have.
    """
    mesh = sharding.mesh
    dims = tuple((d.is_open, d.priority) for d in sharding.dims) if any(d.is_open for d in sharding.dims) else ()
    kept = tuple(sorted(str(axis) for axis in sharding.replicated)) if dims else ()
    kind = "replicated" if sharding.is_replicated else sharding.kind.value
    manual = tuple(sorted(d for axis in sharding.manual for d in mesh.digits(axis))) if mesh else ()
    if mesh and manual and product(manual) == mesh.size:
        kind, manual = "manual", ()
    tiling = sharding.tiling(rank)
    return kind, tiling, manual, sharding.group, dims, kept


def _frontend(attributes: FrontendAttributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name != SHARDY_KEY}


def _shown(value: Any) -> str:
    text = "none" if value is None else value_text(value)
    return text if len(text) <= 60 else text[:57] + "..."
