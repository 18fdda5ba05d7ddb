"""Placement of the arrays of a per-device program on its devices.

The entry parameters and the root of a LOCAL module have shardings (none: replicated), and `Module.global_layout` has
the global shapes; without it, local shapes and tile counts give them. Shardings place data on partitions; all replicas
hold the same data. A per-device program of another compiler need not specify its placement.
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
    """The placement of one leaf of the parameters or of the result. `shape` is the global shape.

    If the program does not specify the placement, `tiling` is None and `shape` is the local shape.
    """

    shape: Shape
    tiling: Tiling | None


def placements(module: Module) -> tuple[list[Placement], list[Placement]]:
    """Returns the placements of the leaves of the parameters, and of the result.

    Raises CompileError if shapes and shardings disagree, or if the module is not a per-device program.
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
