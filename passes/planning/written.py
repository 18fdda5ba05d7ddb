"""Writes a choice into a program as annotations, which propagation completes and the partitioner honours.

Each value gets the sharding in which it is made; a partial sum that of its first reader. Where an op reads a value in
another sharding, a custom-call `Sharding` of its own says so (a pin), since the partitioner would decide anew for each
op.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ...ir.analysis.fewer_layers import ShortProgram
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Role
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling, TupleSharding
from ..propagation.values import Leaf
from ..resharding.table import PARTIAL, WHOLE, Division
from .clusters import stand_of
from .model import Choice, Model


def sharding_of(division: Division, rank: int, mesh: Mesh) -> Sharding:
    """Returns the sharding that a division of an array of this rank means."""
    names = [name for name, _ in mesh.axes]
    dims = (tuple(AxisRef(n) for n, place in zip(names, division) if place == dim) for dim in range(rank))
    return Sharding(ShardingKind.TILED, mesh, tuple(map(DimSharding, dims)), spelling=Spelling.NAMED)


def kept_division(model: Model, choice: Choice, leaf: Leaf) -> Division:
    """Returns the division in which a value is kept: of a partial sum, that of its first reader."""
    division = model.division_of(leaf, choice)
    if PARTIAL not in division:
        return division
    readers = model.of.readers_of(leaf)
    if readers:
        stand = readers[0].stand
        return stand.division(model.classes[stand.cluster].division(choice[stand.cluster]))
    return tuple(WHOLE if place == PARTIAL else place for place in division)


def annotated(
    model: Model, choice: Choice, mesh: Mesh, inner: bool = True, short: ShortProgram | None = None
) -> Module:
    """Returns a copy of the model's program, or of a `short` one for it, with the choice as annotations: of parameters
    and results, and unless `inner` is False of all other values.
    """
    clusters, copies = model.of.clusters, dict[Instruction, Instruction]()
    module = clone_module(clusters.module if short is None else short.module, copies)
    if short is not None:
        copies = {i: copies[copy] for i, copy in short.copies.items()}
    entry = clusters.module.entry
    for instruction, leaves in clusters.graph.leaves.items():
        if instruction not in copies:
            continue
        is_own = all(leaf.instruction is instruction and leaf in clusters.home for leaf in leaves)
        is_bound = instruction.parent is entry and instruction.op.role is Role.PARAMETER
        is_free = any(map(clusters.is_free, leaves)) or not any(leaf.shape.rank for leaf in leaves)
        if not leaves or not is_own or not (inner or is_bound) or (is_free and not is_bound):
            continue
        found = [sharding_of(kept_division(model, choice, leaf), leaf.shape.rank, mesh) for leaf in leaves]
        copies[instruction].sharding = TupleSharding(tuple(found)) if instruction.shape.is_tuple else found[0]
    module.entry.root.sharding = _of_results(model, choice, mesh, None if short is None else short.results)
    if inner:
        _pin(model, choice, mesh, copies)
    module.num_partitions = mesh.size
    module.meshes = {mesh.symbol: mesh}
    return module


def _of_results(
    model: Model, choice: Choice, mesh: Mesh, numbers: Sequence[int] | None
) -> Sharding | TupleSharding:
    """Returns the sharding of the results, or of those with these numbers."""
    clusters, root = model.of.clusters, model.of.clusters.module.entry.root
    found: list[Sharding] = []
    for leaf in clusters.results if numbers is None else [clusters.results[n] for n in numbers]:
        known = leaf in clusters.home and leaf.shape.is_array
        division = kept_division(model, choice, leaf) if known else (WHOLE,) * len(mesh.axes)
        found.append(sharding_of(division, leaf.shape.rank, mesh))
    return TupleSharding(tuple(found)) if root.shape.is_tuple else found[0]


def _pin(model: Model, choice: Choice, mesh: Mesh, copies: dict[Instruction, Instruction]) -> None:
    made: dict[tuple[Instruction, Division], Instruction] = {}
    changed: dict[Computation, None] = {}
    for user, number, leaf, division in _pins(model, choice, copies):
        copy = copies[user]
        value, computation = copy.operands[number], copy.parent
        assert computation is not None
        pin = made.get((value, division))
        if pin is None or pin.parent is not computation:
            pin = computation.build(
                "custom-call", value, custom_call_target="Sharding", shape=value.shape, before=copy, like=copy
            )
            pin.sharding = sharding_of(division, leaf.shape.rank, mesh)
            made[value, division] = pin
        computation.set_operand(copy, number, pin)
        changed[computation] = None
    for computation in changed:
        computation.sort()


def _pins(
    model: Model, choice: Choice, among: Container[Instruction]
) -> Iterator[tuple[Instruction, int, Leaf, Division]]:
    """Yields the operands of some ops on arrays that are read in another division than they are kept in."""
    clusters = model.of.clusters
    for cluster in clusters.all:
        number = model.of.of[cluster.number]
        row = model.classes[number].division(choice[number])
        for member in cluster.members:
            relation = member.relation
            instruction = relation.instruction
            if instruction.op.is_control or not instruction.shape.is_array or instruction not in among:
                continue
            for place, leaf in enumerate(relation.leaves[: len(relation.rule.operands)]):
                if leaf not in clusters.home or clusters.is_free(leaf):
                    continue
                division = stand_of(cluster, member.dims(place)).division(row)
                if division != kept_division(model, choice, leaf):
                    yield instruction, place, leaf, division
