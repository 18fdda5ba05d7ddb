"""Gives the arguments and results of a program shardings that JAX's arrays can have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, Stage
from ..ir.sharding.digit import Digits, merge, primes, product
from ..ir.sharding.mesh import AxisRef
from ..ir.sharding.sharding import REPLICATED, Sharding, ShardingKind, TupleSharding, leaf_shardings
from ..ir.sharding.tiling import Tiling
from ..ir.tools.spmd import parts
from ..passes.base import Pass, PassContext


@dataclass(frozen=True)
class EvenBorders(Pass):
    """Divides parameters and results by fewer devices where propagation divides them unevenly, or by parts of axes.

    Inside, dimensions may be uneven and axes have parts. JAX has arrays with tiles of equal sizes only, over whole axes
    of a mesh, and rejects other shardings that the user asks for; so this changes shardings that propagation chose. A
    remark names each.
    """

    name: ClassVar[str] = "even-borders"
    consumes: ClassVar[frozenset[Stage]] = frozenset((Stage.SHARDED,))

    def run(self, module: Module, context: PassContext) -> bool:
        changed, meshes = _leave_device(module), _meshes(module)
        for instruction in (*module.entry.parameters, module.entry.root):
            leaves = list(instruction.shape.leaves())
            old = leaf_shardings(instruction.sharding, len(leaves))
            new: list[Sharding] = []
            for number, (sharding, leaf) in enumerate(zip(old, leaves, strict=True)):
                found = sharding or REPLICATED
                tiling = found.tiling(leaf.rank) if leaf.is_array else Tiling(())
                even = _representable(tiling, leaf.dims, meshes)
                if even != tiling:
                    found = _spelled(even, found, module.num_partitions)
                    what = f"{_described(instruction, module, number)}, {leaf.without_layout()}"
                    how = "by parts of axes" if tiling.is_even(leaf.dims) else "unevenly"
                    context.diagnostics.remark(f"{what}, would be divided {how} as {sharding}, which JAX's arrays "
                                               f"cannot be; it is {found} instead", instruction.location)
                new.append(found)
            if any(a is not b for a, b in zip(old, new, strict=True)):
                changed = True
                instruction.shardy = None
                instruction.sharding = TupleSharding(tuple(new)) if instruction.shape.is_tuple else new[0]
        return changed


def _leave_device(module: Module) -> bool:
    """Copies a result that is on one device alone to all of them: it is one of a callback, which stays there."""
    root = module.entry.root
    if not isinstance(root.sharding, Sharding) or root.sharding.kind is not ShardingKind.MAXIMAL:
        return False
    copy = module.entry.add("copy", (root,), like=root)
    copy.sharding = REPLICATED
    module.entry.root = copy
    return True


def _meshes(module: Module) -> list[list[Digits]]:
    """Returns the axes of each mesh of the user's, as digits of prime sizes: those that Shardy names, else those of the
    arguments.
    """
    own = module.meshes.values() or (s.mesh for p in module.entry.parameters for s in parts(p.annotation))
    known = [mesh for mesh in own if mesh is not None and mesh.size == module.num_partitions and not mesh.order_key]
    return [[tuple(primes(mesh.digits(AxisRef(name)))) for name, _ in mesh.axes] for mesh in known]


def _representable(tiling: Tiling, dims: tuple[int, ...], meshes: Sequence[Sequence[Digits]]) -> Tiling:
    """Returns the tiling without partial sums and without the digits, minor ones first, that do not divide their
    dimension or are no whole axes of a mesh, the one that keeps most.
    """
    chosen = [tuple(map(partial(_dividing, axes), tiling.dims, dims)) for axes in meshes or [()]]
    kept = max(chosen, key=lambda dims: sum(map(product, dims)))
    return Tiling(kept, (), tiling.order if any(kept) else None)


def _dividing(axes: Sequence[Digits], digits: Digits, size: int) -> Digits:
    """Returns the longest beginning of the digits that consists of axes, any if there are none, and divides a size."""
    rest, kept = tuple(primes(digits)), 0
    while rest[kept:]:
        steps = [axis for axis in axes if axis and rest[kept : kept + len(axis)] == axis] if axes else [rest[kept:][:1]]
        if not steps or not size or size % product((*rest[:kept], *steps[0])):
            break
        kept += len(steps[0])
    return merge(rest[:kept])


def _spelled(tiling: Tiling, like: Sharding, devices: int) -> Sharding:
    if tiling.is_replicated:
        return REPLICATED
    found = Sharding.from_tiling(tiling, like.mesh) if like.mesh is not None else None
    return found or Sharding.on_own_mesh(tiling, devices)


def _described(instruction: Instruction, module: Module, number: int) -> str:
    if instruction is module.entry.root:
        return f"result {number}"
    name = instruction.metadata.op_name if instruction.metadata is not None else ""
    return f"argument {name or instruction.name}"
