"""Evaluates unpartitioned programs on whole tensors. Every other way of running a program is compared with this one."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.tools.expanded import check_expanded
from ..ir.tools.process_grid import ProcessGrid
from ..ir.tools.spmd import has_regions, is_per_device, region_devices
from ..ir.types.literal import Array
from .fabric.local import LocalFabric
from .fabric.tiles import common_value
from .plan.executable import Executable
from .plan.interpreter import Observer
from .plan.kernels import NUMPY, KernelProvider
from .plan.limits import check_device_count


class UnpartitionedProgram:
    """An unpartitioned program, compiled once to run any number of times.

    Raises CompileError for a per-device program, and for a program that cannot be run.
    """

    def __init__(self, module: Module, kernels: KernelProvider = NUMPY) -> None:
        self.module = module
        self.grid = reference_grid(module)
        self.executable = Executable(module, self.grid, kernels)

    def run(self, inputs: Sequence[Array], observer: Observer | None = None) -> list[Array]:
        """Takes one array per leaf of the parameters and returns one per leaf of the result."""
        devices = range(self.grid.size)
        results = self.executable.run(devices, [inputs] * len(devices), LocalFabric(), observer)
        return [common_value(parts, f"result {number}") for number, parts in enumerate(zip(*results, strict=True))]


@checked
def evaluate(module: Module, inputs: Sequence[Array], kernels: KernelProvider = NUMPY) -> list[Array]:
    """Evaluates a GLOBAL or SHARDED module.

    `inputs` holds one array per leaf of the parameters, in order; the result has one per leaf of the program's result.
    The program runs on one device. A program with manual regions runs on all its devices: each computes whole arrays
    outside of regions and its own tiles inside (see `plan/regions`). `kernels` computes the ops.

    Raises CompileError for a per-device program, if the inputs do not fit, where an op cannot be evaluated, or if
    devices disagree about a result that leaves manual regions.
    """
    return UnpartitionedProgram(module, kernels).run(inputs)


def reference_grid(module: Module) -> ProcessGrid:
    """Returns the devices that evaluate an unpartitioned program: one, or all devices of its manual regions.

    Raises CompileError for a per-device program, for more devices than one process can run, and for calls without end.
    """
    check_expanded(module)
    if has_regions(module):
        grid = ProcessGrid(module.replica_count, region_devices(module))
        check_device_count(grid.size)
        return grid
    # Without a count in the header the meshes give the number of devices.
    named = ProcessGrid.of(module).size
    devices = named if named > 1 else region_devices(module)
    if devices > 1 and is_per_device(module):
        fail(f"{module.name} is a per-device program for {devices} devices and cannot run on one",
             help="`hloom run`, or hloom.simulate in Python, runs it on all of them")
    return ProcessGrid()
