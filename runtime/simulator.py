"""The simulator: all devices of a program per device in one process, in lock step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.graph.module import Module
from ..ir.tools.placement import placements
from .fabric.local import LocalFabric
from .fabric.process_grid import ProcessGrid
from .global_arrays import join_outputs, split_inputs
from .plan.executable import Executable
from .plan.limits import require_few

Array = np.ndarray[Any, Any]


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
