"""The simulator: all devices of a LOCAL module in one process, in lock step.

A LOCAL module is one program for all devices. Its entry parameters and its root carry shardings (none: replicated),
and `Module.global_layout` the shapes of the whole arrays; without it local and tile counts give them. Shardings place
data on partitions; all replicas get the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.diagnostics import fail
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.shape import Shape
from ..ir.sharding import leaf_shardings
from ..ir.tiling import Tiling
from .collectives import LocalFabric
from .executor import Executable, check_inputs
from .process_grid import ProcessGrid
from .sharding_io import agreed, assemble, shard

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Placement:
    """How one leaf of the parameters or of the result lies on the partitions. `shape` is that of the whole array."""

    shape: Shape
    tiling: Tiling


def placements(module: Module) -> tuple[list[Placement], list[Placement]]:
    """The leaves of the parameters, and those of the result. Raises CompileError if shapes and shardings disagree."""
    entry, layout = module.entry, module.global_layout
    parameters = [_placements(p, layout.parameters[i] if layout else None) for i, p in enumerate(entry.parameters)]
    return [x for part in parameters for x in part], _placements(entry.root, layout.result if layout else None)


def _placements(instruction: Instruction, whole: Shape | None) -> list[Placement]:
    local = list(instruction.shape.leaves())
    shapes = list(whole.leaves()) if whole is not None else [None] * len(local)
    found: list[Placement] = []
    for sharding, part, shape in zip(leaf_shardings(instruction.sharding, len(local)), local, shapes, strict=True):
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
    inputs: Sequence[Array], places: Sequence[Placement], devices: Sequence[int], partitions: int, poison: bool = False
) -> list[list[Array]]:
    """Global inputs as the local inputs of each of these devices. Raises CompileError if they do not fit."""
    arrays = [a for a in check_inputs([p.shape for p in places], inputs) if a is not None]
    arrays_of = [p for p in places if p.shape.is_array]
    return [
        [shard(a, p.tiling, device % partitions, poison) for a, p in zip(arrays, arrays_of, strict=True)]
        for device in devices
    ]


def join_outputs(outputs: Sequence[Sequence[Array]], places: Sequence[Placement], partitions: int) -> list[Array]:
    """Global results from those of all devices. Raises CompileError where replicas disagree."""
    joined: list[Array] = []
    for number, place in enumerate(places):
        parts = [values[number] for values in outputs]
        if not place.shape.is_array:
            joined.append(parts[0])
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
    """Runs a LOCAL module with local inputs per device; the local results per device."""
    grid = ProcessGrid.of(module)
    return Executable(module, grid).run(range(grid.size), inputs, LocalFabric())


def simulate_devices(module: Module, inputs: Sequence[Array], poison: bool = False) -> Simulation:
    """As `simulate`, with the results of every device as well."""
    grid = ProcessGrid.of(module)
    parameters, results = placements(module)
    per_device = run_devices(module, split_inputs(inputs, parameters, range(grid.size), grid.partitions, poison))
    return Simulation(join_outputs(per_device, results, grid.partitions), per_device)


def simulate(module: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array]:
    """Runs a LOCAL module on all its devices: global arrays in, one per leaf of the parameters, and global arrays out.

    `poison` fills the padding of the inputs with NaN and largest integers instead of zeros.

    Raises CompileError if inputs do not fit, an op cannot be evaluated, a collective is reached by some devices of a
    group only, or devices disagree about a replicated result.
    """
    return simulate_devices(module, inputs, poison).outputs
