"""The simulator: all devices of a program per device in one process, in lock step.

The entry parameters and the root of a LOCAL module carry shardings (none: replicated), and `Module.global_layout` the
shapes of the whole arrays; without it local and tile counts give them. Shardings place data on partitions; all replicas
get the same. A program per device of another compiler need not say where its data lies: a parameter without a sharding
takes one array for all devices, or one with a first dimension that counts the devices, and a result without one comes
with such a dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, Stage
from ..ir.sharding.sharding import leaf_shardings
from ..ir.sharding.tiling import Tiling
from ..ir.tools.spmd import devices_problem, is_per_device
from ..ir.types.shape import Shape
from .fabric.local import LocalFabric
from .fabric.process_grid import ProcessGrid
from .fabric.tiles import agreed, assemble, copied_bytes, shard
from .plan.executable import Executable, check_inputs
from .plan.limits import require_few, require_memory

Array = np.ndarray[Any, Any]


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


def split_inputs(
    inputs: Sequence[Array],
    places: Sequence[Placement],
    devices: Sequence[int],
    grid: ProcessGrid,
    poison: bool = False,
) -> list[list[Array]]:
    """Global inputs as the local inputs of each of these devices. Raises CompileError if they do not fit."""
    wanted = [p for p in places if p.shape.is_array]
    shapes = [
        p.shape.with_dims((grid.size, *p.shape.dims)) if p.tiling is None and np.ndim(a) > p.shape.rank else p.shape
        for p, a in itertools.zip_longest(wanted, inputs[: len(wanted)])
    ]
    arrays = check_inputs(shapes, inputs)
    copies = (copied_bytes(p.shape.dims, a.dtype, p.tiling) for a, p in zip(arrays, wanted, strict=True) if p.tiling)
    require_memory(sum(copies) * len(devices), f"the tiles of the inputs on {len(devices)} devices")

    def part(array: Array, place: Placement, device: int) -> Array:
        if place.tiling is None:
            return array[device] if array.ndim > place.shape.rank else array
        return shard(array, place.tiling, device % grid.partitions, poison)

    return [[part(a, p, device) for a, p in zip(arrays, wanted, strict=True)] for device in devices]


def join_outputs(outputs: Sequence[Sequence[Array]], places: Sequence[Placement], grid: ProcessGrid) -> list[Array]:
    """Global results from those of all devices. Raises CompileError where replicas disagree."""
    partitions = grid.partitions
    joined: list[Array] = []
    for number, place in enumerate(p for p in places if p.shape.is_array):
        parts = [values[number] for values in outputs]
        if place.tiling is None:
            joined.append(np.stack(parts))
            continue
        wholes = [
            assemble(parts[i : i + partitions], place.tiling, place.shape.dims, f"result {number}")
            for i in range(0, len(parts), partitions)
        ]
        joined.append(agreed(wholes, f"result {number}"))
    return joined


@dataclass(frozen=True)
class Simulation:
    """`outputs` are the global results; `per_device` those of each device, padding included."""

    outputs: list[Array]
    per_device: list[list[Array]]


def run_devices(module: Module, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Runs a program per device with local inputs of each device; the local results of each."""
    grid = ProcessGrid.of(module)
    return Executable(module, grid).run(range(grid.size), inputs, LocalFabric())


def simulate_devices(module: Module, inputs: Sequence[Array], poison: bool = False) -> Simulation:
    """As `simulate`, with the results of every device as well."""
    grid = ProcessGrid.of(module)
    require_few(grid.size)
    parameters, results = placements(module)
    per_device = run_devices(module, split_inputs(inputs, parameters, range(grid.size), grid, poison))
    return Simulation(join_outputs(per_device, results, grid), per_device)


def simulate(module: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array]:
    """Runs a program per device on all its devices: global arrays in, one per leaf of the parameters, and global arrays
    out.

    The program is a LOCAL module, or one that another compiler made for several devices. There a parameter without a
    sharding takes one array for all devices, or one of dimensions [devices, ..] with what each device gets; a result
    without a sharding comes as such an array.

    `poison` fills the padding of the inputs with NaN and largest integers instead of zeros.

    Raises CompileError if the module is not partitioned, inputs do not fit, an op cannot be evaluated, a collective is
    reached by some devices of a group only, or devices disagree about a replicated result.
    """
    return simulate_devices(module, inputs, poison).outputs
