"""Annotations: from the shardings written in a program to the leaves of propagation, and back.

A sharding in a device order other than the module's, or on a single device, does not change: its value takes no part in
propagation (`Leaf.fixed_sharding`), and the partitioner reshards around it. Dimensions with a priority wait for their
round. Propagation does not divide a value further by its unreduced, manual and explicitly replicated axes.

Sharding groups tie values: HLO shardings spell them `shard_as N` or `shard_like N`, Shardy spells them as
`xla.sdy.ShardingGroup` custom-calls. All values of a group form one relation, like the values of an element-wise op.
Barriers restrict directions; they are custom-calls that compute nothing.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from ...ir.diagnostics import Diagnostics, fail
from ...ir.factors.sharding_rule import Monoid, elementwise_rule
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.monoid import choice_monoid
from ...ir.ops.calls.custom_call import is_custom_call, target_of
from ...ir.sharding.digit import Digit, Digits, merge
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import AnySharding, Sharding, ShardingKind, TupleSharding, leaf_shardings
from ...ir.sharding.tiling import Tiling
from ...ir.tools.sharding_checks import device_problem
from ...ir.tools.spmd import Order, main_order, parts, without_shardy
from ..base import PassContext
from .devices import anonymous_mesh, main_mesh, num_devices
from .regions import mark_regions
from .values import Gain, Leaf, Pending, PropagationDirection, RuleRelation, ValueGraph


@dataclass
class Annotations:
    """The module's device order, and the mesh for writing propagated shardings."""

    mesh: Mesh
    order: Order

    def write(self, module: Module, graph: ValueGraph) -> None:
        """Sets `sharding` on every instruction and drops Shardy's attributes, which it replaces."""
        leaves = (leaf for found in graph.leaves.values() for leaf in found)
        used = (digits for leaf in leaves for digits in (*leaf.dims, leaf.unreduced, leaf.manual))
        mesh = self.mesh if self.mesh.named else anonymous_mesh(self.mesh.size, self.order, used)
        known: dict[Hashable, Sharding] = {}
        written: dict[int, AnySharding] = {}  # by the identities of lists, which equal layers share
        for instruction, leaves in graph.leaves.items():
            sharding = written.get(id(leaves))
            if sharding is None:
                shardings = [leaf.fixed_sharding or self._sharding(leaf, mesh, known) for leaf in leaves]
                sharding = TupleSharding(tuple(shardings)) if instruction.shape.is_tuple else shardings[0]
                if leaves:
                    written[id(leaves)] = sharding
                elif alone := [s for s in parts(instruction.annotation) if s.kind is ShardingKind.MAXIMAL]:
                    sharding = alone[0]  # a call for its side effect alone may be placed on a device, too
            instruction.sharding = sharding
            if instruction.shardy is not None:
                instruction.shardy = None
            if instruction.frontend_attributes:
                instruction.frontend_attributes = without_shardy(instruction.frontend_attributes)
        module.num_partitions = self.mesh.size

    def _sharding(self, leaf: Leaf, mesh: Mesh, known: dict[Hashable, Sharding]) -> Sharding:
        """Returns the sharding of a leaf on the mesh, or on a mesh of its own if the mesh has no such axes."""
        key = leaf.dims, leaf.unreduced, leaf.manual
        found = known.get(key)
        if found is None:
            tiling = leaf.tiling(self.order)
            found = known[key] = Sharding.from_tiling(tiling, mesh) or Sharding.on_own_mesh(tiling, mesh.size)
        return found


def annotate(module: Module, graph: ValueGraph, context: PassContext) -> Annotations:
    """Puts the program's annotations on the leaves. Reports errors as diagnostics."""
    devices = num_devices(module, context)
    calls = {i for computation in module for i in computation.having(is_custom_call)}
    marked = [i for i in graph.leaves if i.sharding is not None or i.shardy is not None or i.frontend_attributes
              or i in calls]  # fmt: skip
    order, annotated = main_order(marked), [i for i in marked if i.annotation is not None]
    problems: dict[int, str | None] = {}  # by the identities of shardings, which the program keeps
    for instruction in annotated:
        for sharding in parts(instruction.annotation):
            problem = problems[id(sharding)] if id(sharding) in problems else device_problem(sharding, devices)
            problems[id(sharding)] = problem
            if problem:
                context.diagnostics.error(problem, instruction.location)
    reader = _Reader(devices, order, context.diagnostics)
    for leaf, (sharding, instruction) in _leaf_annotations(graph, annotated).items():
        reader.read(leaf, sharding, instruction)
    _fix_boundary(module, graph)
    apply_constraints(graph, marked, context.diagnostics)
    mark_regions(module, graph, marked, context.diagnostics)
    return Annotations(main_mesh(module, annotated, devices, order), order)


def _leaf_annotations(
    graph: ValueGraph, annotated: Iterable[Instruction]
) -> dict[Leaf, tuple[Sharding, Instruction]]:
    """Returns the annotation of each annotated leaf.

    If a leaf has several, the one on the value's own instruction wins, then the least text, so that the order of
    instructions does not matter.
    """
    found: dict[Leaf, tuple[Sharding, Instruction]] = {}
    for instruction in annotated:
        leaves = graph.leaves[instruction]
        if not leaves:
            continue
        for leaf, sharding in zip(leaves, leaf_shardings(instruction.annotation, len(leaves)), strict=True):
            if sharding is None or sharding.kind is ShardingKind.UNKNOWN:
                continue
            if leaf.shape.is_array or sharding.kind is ShardingKind.MAXIMAL:
                other = found.get(leaf)
                if other is None or _goes_first(leaf, sharding, instruction, *other):
                    found[leaf] = (sharding, instruction)
    return found


def _goes_first(leaf: Leaf, sharding: Sharding, instruction: Instruction, other: Sharding, at: Instruction) -> bool:
    if (leaf.instruction is instruction) != (leaf.instruction is at):
        return leaf.instruction is instruction
    return sharding != other and str(sharding) < str(other)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The digits that a sharding gives to an array of some rank; `closed` and `pending` are those of `Leaf`."""

    tiling: Tiling
    replicated: Digits
    dims: tuple[Digits, ...]
    closed: tuple[bool, ...]
    pending: dict[int, list[Pending]]

    @staticmethod
    def of(sharding: Sharding, rank: int, opened: frozenset[int]) -> _Meaning:
        """Returns the meaning of a sharding, with more `opened` dimensions. Raises KeyError and ValueError."""
        tiling, said = sharding.tiling(rank), dict(enumerate(sharding.dims))
        # `manual` without a mesh does not determine the dimensions.
        free = sharding.kind is ShardingKind.MANUAL
        closed = [not (free or d in opened or (d in said and said[d].is_open)) for d in range(rank)]
        dims, pending = list(tiling.dims), dict[int, list[Pending]]()
        if len(dims) == rank:
            for dim, priority in ((d, s.priority) for d, s in said.items() if s.priority):
                pending.setdefault(priority, []).append((dim, dims[dim], closed[dim]))
                dims[dim], closed[dim] = (), True
        return _Meaning(tiling, _digits(sharding.mesh, sharding.replicated), tuple(dims), tuple(closed), pending)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Puts one sharding on one leaf."""

    devices: int
    order: Order
    diagnostics: Diagnostics
    known: dict[Hashable, _Meaning] = field(default_factory=dict[Hashable, _Meaning])

    def read(self, leaf: Leaf, sharding: Sharding, instruction: Instruction) -> None:
        rank = leaf.shape.rank
        try:
            key = sharding, rank, _unspecified_dims(instruction)
            if (meaning := self.known.get(key)) is None:
                meaning = self.known[key] = _Meaning.of(*key)
        except (KeyError, ValueError) as error:
            self.diagnostics.error(f"bad sharding: {error}", instruction.location)
            return
        tiling = meaning.tiling
        if len(tiling.dims) != rank:
            self.diagnostics.error(
                f"sharding has {len(tiling.dims)} dimensions, {leaf.shape} has {rank}", instruction.location)
            return
        unreduced = tiling.unreduced or sharding.kind is ShardingKind.UNREDUCED
        if unreduced and choice_monoid(leaf.shape.element) is Monoid.MAXIMUM:
            self.diagnostics.error(
                f"{leaf.shape.element} has no zero, so that {instruction.name} cannot be unreduced",
                instruction.location, help="annotate the value that it is converted to")
            return
        leaf.annotation = instruction
        foreign = tiling.order != self.order and bool(tiling.used())
        if foreign or sharding.kind is ShardingKind.MAXIMAL:
            leaf.fixed_sharding = sharding
            return
        whole = (Digit(self.devices, 1),) if self.devices > 1 else ()
        leaf.manual = whole if sharding.kind is ShardingKind.MANUAL else tiling.manual
        leaf.unreduced = whole if sharding.kind is ShardingKind.UNREDUCED else tiling.unreduced
        leaf.replicated, leaf.dims, leaf.closed = meaning.replicated, meaning.dims, meaning.closed
        leaf.pending.update({priority: list(pending) for priority, pending in meaning.pending.items()})
        leaf.causes = [[Gain(digits, None)] if digits else [] for digits in meaning.dims]


def _digits(mesh: Mesh | None, refs: tuple[AxisRef, ...]) -> Digits:
    return merge(d for ref in refs for d in mesh.digits(ref)) if mesh is not None else ()


def _unspecified_dims(instruction: Instruction) -> frozenset[int]:
    """Returns the dimensions that a `Sharding` custom-call leaves open: `backend_config="unspecified_dims=[1,2]"`."""
    if (config := instruction.backend_config) is None:
        return frozenset()
    text = str(config)
    match = re.search(r"unspecified_dims=\[([\d,\s]*)\]", text)
    return frozenset(int(n) for n in match[1].split(",") if n.strip()) if match else frozenset()


def _fix_boundary(module: Module, graph: ValueGraph) -> None:
    """Replicates unannotated entry parameters and results that the module header excludes from propagation."""
    entry = module.entry
    parameters = [leaf for p in entry.parameters for leaf in graph.leaves[p]]
    results = graph.leaves[entry.root]
    for leaves, allowed in ((parameters, module.allow_propagation_to_parameters),
                            (results, module.allow_propagation_to_output)):
        if allowed is None:
            continue
        flags = allowed * len(leaves) if len(allowed) == 1 else allowed
        for leaf, free in zip(leaves, flags, strict=False):
            if not free and not leaf.annotated:
                leaf.closed = (True,) * leaf.shape.rank


Group = tuple[str, int]

_DIRECTIONS = (
    PropagationDirection.NONE, PropagationDirection.FORWARD, PropagationDirection.BACKWARD, PropagationDirection.BOTH,
)  # fmt: skip
_BARRIERS = {"ShardBarrierFrom": PropagationDirection.BACKWARD, "ShardBarrierTo": PropagationDirection.FORWARD}


def apply_constraints(graph: ValueGraph, marked: Iterable[Instruction], diagnostics: Diagnostics) -> None:
    """Adds the relations of groups and sets the directions that barriers allow, as `marked` instructions say. Reports
    errors as diagnostics.
    """
    for relation in graph.relations:
        target = target_of(relation.instruction)
        if target is not None:
            relation.allowed = _allowed(target, relation.instruction)
    groups: dict[Group, dict[Leaf, Instruction]] = {}
    for group, leaf, instruction in _members(graph, marked):
        groups.setdefault(group, {}).setdefault(leaf, instruction)
    for (kind, number), members in groups.items():
        leaves = list(members)
        odd = next((x for x in leaves if x.shape.dims != leaves[0].shape.dims), None)
        if odd is not None:
            diagnostics.error(
                f"{members[odd].name} in {kind} {number} is {odd.shape.without_layout()}, "
                f"{members[leaves[0]].name} is {leaves[0].shape.without_layout()}", members[odd].location,
                help="values of one sharding group must have the same dimensions")
        elif len(leaves) > 1:
            shapes = [x.shape for x in leaves]
            depth = max(graph.depths[i] for i in members.values())
            # All are results: which of them comes first in the program must not matter.
            graph.relate(RuleRelation(elementwise_rule((), shapes), leaves, members[leaves[0]], depth))


def _members(graph: ValueGraph, marked: Iterable[Instruction]) -> Iterator[tuple[Group, Leaf, Instruction]]:
    for instruction in marked:
        leaves = graph.leaves[instruction]
        if (said := instruction.frontend_attributes) and "xla.sdy.sharding_group_id" in said:
            number = _number(instruction, "xla.sdy.sharding_group_id", "")
            for operand in instruction.operands:
                yield from ((("sharding group", number), leaf, instruction) for leaf in graph.leaves[operand])
        if (annotation := instruction.annotation) is None:
            continue
        for place, sharding in enumerate(parts(annotation)):
            if sharding.group is not None:
                yield from (((sharding.group.kind, sharding.group.number), leaf, instruction)
                            for leaf in leaves[place : place + 1])


def _allowed(target: str, instruction: Instruction) -> PropagationDirection:
    """Returns the directions in which shardings may pass a custom-call."""
    if target == "xla.sdy.PropagationBarrier":
        return _DIRECTIONS[_number(instruction, "xla.sdy.allowed_direction", "0") % 4]
    return _BARRIERS.get(target, PropagationDirection.BOTH)


def _number(instruction: Instruction, key: str, default: str) -> int:
    """Reads the number in an attribute such as `"2 : i64"`. Raises CompileError."""
    text = str(instruction.frontend_attributes.get(key, default))
    match = re.match(r"\s*(\d+)\s*(:|$)", text)
    if match is None:
        fail(f"{instruction.name}: {key} is '{text}', a number is expected", instruction.location)
    return int(match[1])
