"""Writes a choice into a program as annotations, which propagation completes and the partitioner honours.

Each value gets the sharding in which it is made; a partial sum that of its first reader. Where an op reads a value in
another sharding, a custom-call `Sharding` of its own says so (a pin), since the partitioner would decide anew for each
op. Or fewer values are annotated (`Inside`): what only follows them costs no exchange of its own then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from ...cost.work import is_contraction
from ...ir.analysis.fewer_layers import ShortProgram
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Role
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling, TupleSharding
from ..propagation.values import Leaf
from ..resharding.table import PARTIAL, WHOLE, Division
from .classes import Classes
from .clusters import Stand, stand_of
from .model import Choice, Model

T = TypeVar("T")


class Inside(IntEnum):
    """The values inside of a program that get annotations, in addition to parameters and results: none, those that
    loops carry and products make, or all, with pins of reads.
    """

    FREE = 0
    FEW = 1
    EVERY = 2


def sharding_of(division: Division, rank: int, mesh: Mesh) -> Sharding:
    """Returns the sharding that a division of an array of this rank means."""
    names = [name for name, _ in mesh.axes]
    dims = (tuple(AxisRef(n) for n, place in zip(names, division) if place == dim) for dim in range(rank))
    return Sharding(ShardingKind.TILED, mesh, tuple(map(DimSharding, dims)), spelling=Spelling.NAMED)


class _Value(NamedTuple):
    """A value to annotate, from an extent of annotations (`least`) on: its leaves by the numbers of their stands, with
    their ranks.
    """

    instruction: Instruction
    leaves: Sequence[tuple[int, int]]
    least: Inside


class _Read(NamedTuple):
    """An operand, which its user reads in the division of a `stand` and which is `kept` in another, by their numbers.
    """

    user: Instruction
    place: int
    stand: int
    kept: int
    rank: int


class _Numbers(Generic[T]):
    """Numbers different values."""

    def __init__(self) -> None:
        self.found: dict[T, int] = {}

    def of(self, value: T) -> int:
        return self.found.setdefault(value, len(self.found))


class AnnotationWriter:
    """Writes choices of divisions of some classes into their program, or into a `short` one for it: finds once which
    values get an annotation and which reads may get a pin.
    """

    def __init__(self, of: Classes, short: ShortProgram | None = None) -> None:
        self._of = of
        self._stands = _Numbers[Stand]()
        self._kept = _Numbers[tuple[int, int]]()  # the stand of a value, and of its first reader, -1 without one
        self.module = of.clusters.module if short is None else short.module
        self._values, self._reads = list[_Value](), list[_Read]()
        clusters, entry = of.clusters, of.clusters.module.entry
        carried = {cluster.leaf.instruction for cluster in clusters.all if cluster.leaf is not None}
        copies = None if short is None else short.copies
        for instruction, leaves in clusters.graph.leaves.items():
            copy = instruction if copies is None else copies.get(instruction)
            is_bound = instruction.parent is entry and instruction.op.role is Role.PARAMETER
            is_free = any(map(clusters.is_free, leaves)) or not any(leaf.shape.rank for leaf in leaves)
            is_own = all(leaf.instruction is instruction and leaf in clusters.home for leaf in leaves)
            if copy is None or not leaves or not is_own or (is_free and not is_bound):
                continue
            found = [(self._of_leaf(leaf), leaf.shape.rank) for leaf in leaves]
            is_key = instruction in carried or is_contraction(instruction)
            least = Inside.FREE if is_bound else Inside.FEW if is_key else Inside.EVERY
            self._values.append(_Value(copy, found, least))
        results = clusters.results if short is None else [clusters.results[n] for n in short.results]
        self._results = [
            (self._of_leaf(leaf) if leaf in clusters.home and leaf.shape.is_array else -1, leaf.shape.rank)
            for leaf in results
        ]
        self._find_reads(copies)

    def _of_leaf(self, leaf: Leaf) -> int:
        """Returns the number of the stand in which a value is kept."""
        stand, readers = self._of.stand(leaf), self._of.readers_of(leaf)
        return self._kept.of((self._stands.of(stand), self._stands.of(readers[0].stand) if readers else -1))

    def _find_reads(self, copies: Mapping[Instruction, Instruction] | None) -> None:
        """Finds the operands of ops that may be read in another division than they are kept in."""
        clusters = self._of.clusters
        for cluster in clusters.all:
            number = self._of.of[cluster.number]
            for member in cluster.members:
                relation = member.relation
                instruction = relation.instruction
                user = instruction if copies is None else copies.get(instruction)
                if user is None or instruction.op.is_control or not instruction.shape.is_array:
                    continue
                for place, leaf in enumerate(relation.leaves[: len(relation.rule.operands)]):
                    if leaf in clusters.home and not clusters.is_free(leaf):
                        stand = Stand(number, stand_of(cluster, member.dims(place)).places)
                        read, kept = self._stands.of(stand), self._of_leaf(leaf)
                        self._reads.append(_Read(user, place, read, kept, leaf.shape.rank))

    def write(self, model: Model, choice: Choice, mesh: Mesh, inside: Inside = Inside.EVERY) -> Module:
        """Returns a copy of the program with the choice as annotations: of parameters and results, and of values
        `inside`.
        """
        rows = {number: model.classes[number].division(row) for number, row in choice.items()}
        divisions = [stand.division(rows[stand.cluster]) for stand in self._stands.found]
        kept = [_kept(divisions[own], divisions[reader] if reader >= 0 else None) for own, reader in self._kept.found]
        kept.append((WHOLE,) * len(mesh.axes))  # at -1
        known: dict[tuple[Division, int], Sharding] = {}

        def sharding(division: Division, rank: int) -> Sharding:
            if (division, rank) not in known:
                known[division, rank] = sharding_of(division, rank, mesh)
            return known[division, rank]

        copies = dict[Instruction, Instruction]()
        module = clone_module(self.module, copies)
        for value in self._values:
            if value.least <= inside:
                found = [sharding(kept[number], rank) for number, rank in value.leaves]
                is_tuple = value.instruction.shape.is_tuple
                copies[value.instruction].sharding = TupleSharding(tuple(found)) if is_tuple else found[0]
        found = [sharding(kept[number], rank) for number, rank in self._results]
        module.entry.root.sharding = TupleSharding(tuple(found)) if module.entry.root.shape.is_tuple else found[0]
        if inside is Inside.EVERY:
            pins = ((r, divisions[r.stand]) for r in self._reads if divisions[r.stand] != kept[r.kept])
            _pin([(copies[r.user], r.place, sharding(division, r.rank)) for r, division in pins])
        module.num_partitions = mesh.size
        module.meshes = {mesh.symbol: mesh}
        return module


def _kept(division: Division, reader: Division | None) -> Division:
    """Returns the division in which a value is kept that is made in one: of a partial sum, that of its first reader."""
    if PARTIAL not in division:
        return division
    return reader if reader is not None else tuple(WHOLE if place == PARTIAL else place for place in division)


def annotated(model: Model, choice: Choice, mesh: Mesh) -> Module:
    """Returns a copy of the model's program with the choice as annotations of all values."""
    return AnnotationWriter(model.of).write(model, choice, mesh)


def _pin(reads: Iterable[tuple[Instruction, int, Sharding]]) -> None:
    """Lets users read operands, by their places, in other shardings."""
    made: dict[tuple[Instruction, int], Instruction] = {}
    changed: dict[Computation, None] = {}
    for user, place, sharding in reads:
        value, computation = user.operands[place], user.parent
        assert computation is not None
        pin = made.get((value, id(sharding)))
        if pin is None or pin.parent is not computation:
            pin = computation.build(
                "custom-call", value, custom_call_target="Sharding", shape=value.shape, before=user, like=user
            )
            pin.sharding = sharding
            made[value, id(sharding)] = pin
        computation.set_operand(user, place, pin)
        changed[computation] = None
    for computation in changed:
        computation.sort()
