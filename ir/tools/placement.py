"""How the arrays of a program per device lie on its devices.

The entry parameters and the root of a LOCAL module carry shardings (none: replicated), and `Module.global_layout` the
shapes of the whole arrays; without it local and tile counts give them. Shardings place data on partitions; all replicas
get the same. A program per device of another compiler need not say where its data lies.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..diagnostics import fail
from ..graph.instruction import Instruction
from ..graph.module import Module, Stage
from ..sharding.sharding import leaf_shardings
from ..sharding.tiling import Tiling
from ..types.shape import Shape
from .spmd import devices_problem, is_per_device


@dataclass(frozen=True)
class Placement:
    """How one leaf of the parameters or of the result lies on the partitions. `shape` is that of the whole array.

    `tiling` is None, and `shape` that of each device, where the program does not say.
    """

    shape: Shape
    tiling: Tiling | None


def placements(module: Module) -> tuple[list[Placement], list[Placement]]:
    """The leaves of the parameters, and those of the result. Raises CompileError if shapes and shardings disagree, or
    if the module is no program per device.
    """
    if not is_per_device(module):
        fail(f"{module.name} is not partitioned yet: it is {module.stage.value}, not the program of each device",
             help="partition it first: hloom.partition(module)")
    entry, layout = module.entry, module.global_layout
    parameters = [_placements(module, p, layout.parameters[i] if layout else None)
                  for i, p in enumerate(entry.parameters)]
    result = _placements(module, entry.root, layout.result if layout else None)
    return [x for part in parameters for x in part], result


def _placements(module: Module, instruction: Instruction, whole: Shape | None) -> list[Placement]:
    local = list(instruction.shape.leaves())
    shapes = list(whole.leaves()) if whole is not None else [None] * len(local)
    is_foreign = module.stage is Stage.GLOBAL and module.num_partitions * module.replica_count > 1
    found: list[Placement] = []
    for sharding, part, shape in zip(leaf_shardings(instruction.annotation, len(local)), local, shapes, strict=True):
        if is_foreign and (sharding is None or sharding.has_manual):
            found.append(Placement(part, None))
            continue
        problem = devices_problem(sharding, module.num_partitions) if sharding is not None else None
        if problem:
            fail(f"{instruction.name}: {problem}", instruction.location)
        tiling = sharding.tiling(part.rank) if sharding is not None else Tiling.replicated(part.rank)
        if shape is None:
            shape = part.with_dims(tuple(n * tiling.tiles(d) for d, n in enumerate(part.dims)))
        if tiling.local_dims(shape.dims) != part.dims:
            fail(
                f"{instruction.name}: {shape.without_layout()} sharded as {sharding} has tiles of "
                f"{list(tiling.local_dims(shape.dims))}, the local shape is {part.without_layout()}",
                instruction.location,
            )
        found.append(Placement(shape, tiling))
    return found
