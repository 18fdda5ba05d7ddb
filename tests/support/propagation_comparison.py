"""Hloom's propagation and Shardy's on one program, value by value, and what each set of shardings moves.

Compared are all arrays of more than one element but those that depend on no parameter and broadcasts of scalars: of
these Shardy gives every user a copy of its own, so there is no one sharding to compare. Elements of a loop's state
count once. Two shardings are the same if every dimension of more than one element has the same digits of the device
number.

What a set of shardings costs is counted on the program that Hloom's partitioner makes of it: bytes that a device sends
in collectives, and multiplications; executions of loop bodies multiplied in. Shardy's shardings are put on all compared
values as closed annotations, and Hloom propagates what is left (constants, scalars).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import hloom
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.sharding.mesh import Mesh
from hloom.ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling, TupleSharding, leaf_shardings
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.tools.trip_count import trip_count
from hloom.ir.types.shape import Shape
from support import shardy_oracle

Key = tuple[str, int]  # instruction and leaf
WITHOUT_VALUES = frozenset({"tuple", "get-tuple-element", "parameter", "constant", "iota", "opt-barrier"})


@dataclass(frozen=True)
class Value:
    """One compared array: the leaf of an instruction, with both shardings as `[x, -]`."""

    key: Key
    opcode: str
    op_name: str
    shape: Shape
    ours: str
    theirs: str
    same: bool


@dataclass(frozen=True)
class Cost:
    """What one device does: bytes it sends in collectives, multiplications in dots and convolutions."""

    bytes: int
    work: int


@dataclass
class Comparison:
    """All values of a program, and what either set of shardings costs; `single` with Shardy's for one value alone.

    The costs are None where Hloom cannot partition the program.
    """

    values: list[Value]
    ours: Cost | None
    theirs: Cost | None
    single: dict[Key, Cost | None] = field(default_factory=dict[Key, "Cost | None"])

    @property
    def differences(self) -> list[Value]:
        return [v for v in self.values if not v.same]

    @property
    def agreement(self) -> float:
        """The share of values with the same sharding."""
        return 1 - len(self.differences) / max(len(self.values), 1)


def compare(text: str, each: bool = False) -> Comparison:
    """Propagates a program both ways. `each` also counts, per difference, ours with Shardy's sharding there alone."""
    module, op_names = shardy_oracle.prepare(text)
    theirs = shardy_oracle.propagate(module)
    ours = hloom.propagate(module)
    values = list(_values(ours, theirs, op_names))
    result = Comparison(values, cost(ours), cost(forced(module, theirs, [v.key for v in values])))
    if each:
        mine = {i.name: list(leaf_shardings(i.sharding, i.shape.num_leaves)) for c in ours for i in c}
        for value in result.differences:
            name, leaf = value.key
            shardings = dict(mine)
            shardings[name] = [theirs[name][leaf] if n == leaf else s for n, s in enumerate(mine[name])]
            keys = [v.key for v in values]
            result.single[value.key] = cost(forced(module, shardings, keys))
    return result


def cost(module: Module) -> Cost | None:
    """What the partitioned module costs a device; None if it cannot be partitioned."""
    try:
        local = hloom.partition(module)
    except hloom.CompileError:
        return None
    return Cost(sum(c.wire_bytes * c.count for c in hloom.collectives(local)), multiplications(local.entry))


def multiplications(computation: Computation) -> int:
    """Of dots and convolutions: their index space is that of their factors. Loop bodies count as often as they run."""
    total = 0
    for instruction in computation:
        if instruction.opcode in ("dot", "convolution"):
            rule = instruction.op.sharding_rule(instruction.call)
            total += math.prod(f.size for f in rule.factors)
        elif instruction.op.is_control:
            trips = trip_count(instruction) or 1 if instruction.opcode == "while" else 1
            total += trips * sum(map(multiplications, instruction.called()))
    return total


def forced(module: Module, shardings: Mapping[str, Sequence[Sharding | None]], keys: Sequence[Key]) -> Module:
    """A copy of a GLOBAL module with these shardings, all dimensions closed, on the leaves `keys`."""
    copy = clone_module(module)
    mesh = next(iter(copy.meshes.values()))
    wanted = set(keys)
    for computation in copy:
        for instruction in computation:
            leaves = instruction.shape.num_leaves
            if not any((instruction.name, n) in wanted for n in range(leaves)):
                continue
            found = [closed(s, shape, mesh) for s, shape in
                     zip(shardings[instruction.name], instruction.shape.leaves(), strict=True)]  # fmt: skip
            instruction.shardy = None
            instruction.sharding = TupleSharding(tuple(found)) if instruction.shape.is_tuple else found[0]
            instruction.frontend_attributes = {
                k: v for k, v in instruction.frontend_attributes.items() if k != "xla.sdy.sharding"
            }
    return copy


def closed(sharding: Sharding | None, shape: Shape, mesh: Mesh) -> Sharding:
    """The sharding with no open dimension; None is replicated."""
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        dims = (DimSharding(),) * shape.rank
        return Sharding(ShardingKind.TILED, mesh, dims, spelling=Spelling.NAMED)
    dims = tuple(DimSharding(d.axes) for d in sharding.dims) or (DimSharding(),) * shape.rank
    return Sharding(ShardingKind.TILED, sharding.mesh, dims, spelling=Spelling.NAMED)


def _values(
    ours: Module, theirs: Mapping[str, Sequence[Sharding | None]], op_names: Mapping[str, str]
) -> Iterator[Value]:
    mesh = next(iter(ours.meshes.values()))
    for computation in reached(ours.entry):
        made = constants(computation)
        for instruction in computation:
            if instruction in made or instruction.name not in theirs or not _has_value(instruction, ours):
                continue
            mine = leaf_shardings(instruction.sharding, instruction.shape.num_leaves)
            others = theirs[instruction.name]
            for leaf, (shape, a, b) in enumerate(zip(instruction.shape.leaves(), mine, others, strict=True)):
                if shape.is_array and shape.num_elements > 1:
                    a, b = closed(a, shape, mesh), closed(b, shape, mesh)
                    same = _meaning(a, shape) == _meaning(b, shape)
                    yield Value((instruction.name, leaf), instruction.opcode, op_names.get(instruction.name, ""), shape,
                                _text(a), _text(b), same)  # fmt: skip


def reached(computation: Computation) -> Iterator[Computation]:
    """The entry and the computations of control flow, each once."""
    yield computation
    for instruction in computation:
        if instruction.op.is_control:
            for called in instruction.called():
                yield from reached(called)


def _has_value(instruction: Instruction, module: Module) -> bool:
    if instruction.opcode == "parameter":
        return instruction.parent is module.entry
    return instruction.opcode not in WITHOUT_VALUES


def constants(computation: Computation) -> set[Instruction]:
    """What depends on no parameter, and broadcasts of single elements."""
    found: set[Instruction] = set()
    for instruction in computation:
        pure = instruction.opcode not in ("parameter", "partition-id", "replica-id") and not instruction.op.is_control
        spread = instruction.opcode == "broadcast" and instruction.operands[0].shape.num_elements == 1
        if spread or (pure and all(o in found for o in instruction.operands)):
            found.add(instruction)
    return found


def _text(sharding: Sharding) -> str:
    """`[x y, -]`: the axes of each dimension, or `replicated`."""
    if sharding.is_replicated:
        return "replicated"
    return f"[{', '.join(' '.join(a.text('') for a in d.axes) or '-' for d in sharding.dims)}]"


def _meaning(sharding: Sharding, shape: Shape) -> Tiling:
    tiling = sharding.tiling(shape.rank)
    dims = tuple(d if n > 1 else () for d, n in zip(tiling.dims, shape.dims, strict=True))
    return Tiling(dims, (), tiling.order)
