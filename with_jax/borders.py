"""Makes the arguments and results of a program divide evenly, as JAX's arrays must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, Stage
from ..ir.sharding.digit import Digits, merge, primes
from ..ir.sharding.sharding import REPLICATED, Sharding, ShardingKind, TupleSharding, leaf_shardings
from ..ir.sharding.tiling import Tiling
from ..passes.base import Pass, PassContext


@dataclass(frozen=True)
class EvenBorders(Pass):
    """Divides parameters and results by fewer devices where propagation divides them unevenly.

    Inside, dimensions may be uneven. JAX has arrays with tiles of equal sizes only, and rejects uneven shardings that
    the user asks for; so this changes shardings that propagation chose. A remark names each.
    """

    name: ClassVar[str] = "even-borders"
    consumes: ClassVar[frozenset[Stage]] = frozenset((Stage.SHARDED,))

    def run(self, module: Module, context: PassContext) -> bool:
        changed = _leave_device(module)
        for instruction in (*module.entry.parameters, module.entry.root):
            leaves = list(instruction.shape.leaves())
            old = leaf_shardings(instruction.sharding, len(leaves))
            new: list[Sharding] = []
            for number, (sharding, leaf) in enumerate(zip(old, leaves, strict=True)):
                found = sharding or REPLICATED
                tiling = found.tiling(leaf.rank) if leaf.is_array else Tiling(())
                even = even_tiling(tiling, leaf.dims)
                if even != tiling:
                    found = _spelled(even, found, module.num_partitions)
                    what = _described(instruction, module, number)
                    context.diagnostics.remark(
                        f"{what}, {leaf.without_layout()}, would be divided unevenly as {sharding}, which JAX's arrays "
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


def even_tiling(tiling: Tiling, dims: tuple[int, ...]) -> Tiling:
    """Returns the tiling without the digits, minor ones first, that do not divide their dimension, and without partial
    sums.
    """
    kept = tuple(_dividing(digits, size) for digits, size in zip(tiling.dims, dims, strict=True))
    return Tiling(kept, (), tiling.order if any(kept) else None)


def _dividing(digits: Digits, size: int) -> Digits:
    kept: list[Digits] = [()]
    for digit in primes(digits):
        if size == 0 or size % digit.size:
            break
        size //= digit.size
        kept.append((*kept[-1], digit))
    return merge(kept[-1])


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
