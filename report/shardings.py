"""The results of propagation for people to read, value by value.

Values have the names of their instructions, `computation/name` outside of the entry, `name[2]` for an array inside a
tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..cost.machine import DEFAULT, Machine
from ..cost.work import is_contraction
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, Stage
from ..ir.graph.op import Role
from ..ir.sharding.digit import product
from ..ir.sharding.mesh import Mesh
from ..ir.sharding.sharding import Sharding, leaf_shardings
from ..ir.tools.names import fits, name_pattern, names_of
from ..ir.tools.spmd import main_order, require_undivided
from ..passes.base import PassContext, run_pipeline
from ..passes.op_sharding.costs import idle_digits, points
from ..passes.op_sharding.decide import Decider
from ..passes.op_sharding.forms import LocalForms
from ..passes.op_sharding.use import OpUses
from ..passes.pipelines import PROPAGATE
from ..passes.propagation.propagate import Propagate, propagation
from ..passes.propagation.values import Leaf, LeafDigits, ValueGraph
from ..passes.spmd.local_forms import local_forms


@dataclass(frozen=True, slots=True)
class ShardingRow:
    """One array value. `axes` abbreviates its sharding (`[x, -]`), `local` is the shape on a device, `why` lists the
    causes.

    `path` is the frontend's name (JAX's path of a parameter), if any. `parameter`: the value is one of the program.
    `work` are the multiply-adds of a contraction on one device, as the partitioner will divide it, in one execution;
    `repeated_work` those of them that no device would do if the devices that compute the same divided it.
    """

    name: str
    shape: str
    local: str
    axes: str
    annotated: bool
    why: str
    path: str = ""
    work: int = 0
    repeated_work: int = 0
    parameter: bool = False


@dataclass(frozen=True, slots=True)
class Dispute:
    """A conflict at the op `via`: the axes `lost` of one value gave way to `kept`; each as `value dimension n: axes`.

    `received` estimates the bytes that each device receives because of it.
    """

    via: str
    kept: str
    lost: str
    received: int

    def __str__(self) -> str:
        return f"at {self.via}, {self.lost} gave way to {self.kept} ({self.received} bytes)"


@dataclass(frozen=True)
class Solved:
    """A SHARDED module with the solved graph of its propagation."""

    module: Module
    graph: ValueGraph
    machine: Machine = DEFAULT
    forms: LocalForms = field(default_factory=local_forms)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh of the first sharding that has one; all others have as many devices."""
        meshes = (sharding.mesh for _, _, sharding in self.named() if sharding.mesh is not None)
        return next(meshes, Mesh((("devices", self.module.num_partitions),)))

    @cached_property
    def _names(self) -> dict[Leaf, str]:
        names: dict[Leaf, str] = {}
        for name, leaf, _ in self.named():
            names.setdefault(leaf, name)
        return names

    def name(self, leaf: Leaf) -> str:
        """Returns the name of a leaf's value."""
        return self._names.get(leaf, leaf.instruction.name)

    def named(self) -> Iterator[tuple[str, Leaf, Sharding]]:
        """Yields all arrays with their names and shardings. An element of a tuple appears again under its own name."""
        return ((name, leaf, sharding) for name, leaf, sharding, _ in self._walk())

    def called(self, text: str) -> list[tuple[str, Leaf, Sharding]]:
        """Returns the arrays of this name, or whose names or paths match the pattern, as in strategies.

        A pattern selects the entry's parameters, or other values if it matches none of them.
        """
        named = list(self.named())
        found = [n for n in named if n[0] == text or text in (n[0].partition("[")[0], n[0].rpartition("/")[2])]
        exact = [n for n in found if n[0] == text]
        pattern = name_pattern(text)
        if not found:
            fitting = [(i, (n, leaf, s)) for n, leaf, s, i in self._walk() if fits(pattern, (n, *names_of(i)))]
            parameters = {*self.module.entry.parameters}
            found = [n for i, n in fitting if i in parameters] or [n for _, n in fitting]
        return exact or found

    def _walk(self) -> Iterator[tuple[str, Leaf, Sharding, Instruction]]:
        for computation in self.module:
            prefix = "" if computation is self.module.entry else f"{computation.name}/"
            for instruction in computation:
                leaves = self.graph.leaves.get(instruction, [])
                found = leaf_shardings(instruction.sharding, len(leaves)) if leaves else ()
                for index, (leaf, sharding) in enumerate(zip(leaves, found, strict=True)):
                    if leaf.shape.is_array and sharding is not None:
                        suffix = f"[{index}]" if instruction.shape.is_tuple else ""
                        yield prefix + instruction.name + suffix, leaf, sharding, instruction

    def rows(self) -> Iterator[ShardingRow]:
        """Yields one row per array; omits elements taken out of tuples."""
        taken = {i.name for c in self.module for i in c if i.op.role is Role.ELEMENT}
        for name, leaf, sharding, instruction in self._walk():
            if name.rpartition("/")[2] not in taken:
                yield self._row(name, leaf, sharding, instruction)

    def disputes(self, leaf: Leaf | None = None) -> Iterator[Dispute]:
        """Yields the disputes of one value, or of all."""
        own = (c for c in self.graph.conflicts if leaf is None or leaf in (c.kept.leaf, c.lost.leaf))
        yield from dict.fromkeys(
            Dispute(c.via.name, self._place(c.kept), self._place(c.lost), c.received) for c in own)

    def _place(self, place: LeafDigits) -> str:
        refs = self.mesh.refs(place.digits)
        axes = " ".join(r.text("") for r in refs) if refs is not None else str(place.digits)
        return f"{self.name(place.leaf)} dimension {place.dim}: {axes or 'whole'}"

    def _row(self, name: str, leaf: Leaf, sharding: Sharding, instruction: Instruction) -> ShardingRow:
        tiling = sharding.tiling(leaf.shape.rank)
        shape = leaf.shape.without_layout()
        axes = short(sharding)
        path = "".join(names_of(instruction)[1:])
        work, alike = self._work.get(instruction, (0, 1))
        local = str(tiling.local_shape(leaf.shape))
        repeated = work - work // alike
        given = instruction in self._parameters
        return ShardingRow(name, str(shape), local, axes, leaf.annotated, self._why(leaf), path, work, repeated, given)

    @cached_property
    def _parameters(self) -> set[Instruction]:
        return {*self.module.entry.parameters}

    @cached_property
    def _work(self) -> dict[Instruction, tuple[int, int]]:
        """The multiply-adds of each contraction on a device, and how many devices compute the same."""
        decider = Decider(self.module.num_partitions, self.machine, self.forms, OpUses(self.graph.rules))
        found: dict[Instruction, tuple[int, int]] = {}
        for computation in self.module:
            order = main_order(computation)
            for instruction in filter(is_contraction, computation):
                leaves = [leaf for value in (*instruction.operands, instruction) for leaf in self.graph.leaves[value]]
                tilings = tuple(leaf.tiling(order) for leaf in leaves)
                use = decider.uses.of(instruction.op, instruction.call, tilings, order)
                choice = decider.decide(use)
                idle = idle_digits(choice.op, choice.assignment)
                found[instruction] = points(choice.op, choice.assignment), product(idle)
        return found

    def _why(self, leaf: Leaf) -> str:
        if leaf.annotated:
            return "annotation"
        sources = (g.cause.source for gains in leaf.causes for g in gains if g.cause is not None)
        return ", ".join(dict.fromkeys(map(self.name, sources)))


def solved(module: Module, context: PassContext) -> Solved:
    """Propagates in place (GLOBAL to SHARDED). Raises CompileError."""
    require_undivided(module, "propagation")
    run_pipeline([p for p in PROPAGATE if not isinstance(p, Propagate)], module, context)
    graph = propagation(module, context)
    module.stage = Stage.SHARDED
    return Solved(module, graph, context.machine, context.forms)


def short(sharding: Sharding) -> str:
    """Abbreviates a sharding: `[x y, -]` for the axes of each dimension, or `replicated`; then unreduced and manual
    axes.
    """
    if sharding.mesh is None:
        return sharding.kind.value if not sharding.is_replicated else "replicated"
    more = [f"{what} {' '.join(a.text('') for a in axes)}"
            for what, axes in (("unreduced", sharding.unreduced), ("manual", sharding.manual)) if axes]  # fmt: skip
    if not any(d.axes for d in sharding.dims):
        return ", ".join(more) or "replicated"
    dims = [" ".join(a.text("") for a in d.axes) or "-" for d in sharding.dims]
    return ", ".join([f"[{', '.join(dims)}]", *more])
