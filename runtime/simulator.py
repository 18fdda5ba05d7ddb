"""Simulates all devices of a per-device program in one process, in lock step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.brief import brief
from ..ir.checked_call import checked
from ..ir.graph.module import Module
from ..ir.tools.placement import placements
from ..ir.tools.process_grid import ProcessGrid
from ..ir.types.literal import Array
from .fabric.local import LocalFabric
from .fabric.tiles import Poison
from .global_arrays import join_outputs, packed_inputs, split_inputs, unpacked_outputs
from .plan.executable import Executable
from .plan.interpreter import Observer
from .plan.kernels import NUMPY, KernelProvider
from .plan.limits import check_device_count
from .plan.repeated import repeated


@brief
@dataclass(frozen=True)
class Simulation:
    """The results of a simulated run. `outputs` are global; `per_device` are those of each device, padding included."""

    outputs: list[Array]
    per_device: list[list[Array]]


class SimulatedProgram:
    """A per-device program, compiled once to run on all its devices in this process, any number of times.

    Raises CompileError if the module is not partitioned, or cannot be run.
    """

    def __init__(self, module: Module, kernels: KernelProvider = NUMPY) -> None:
        self.module = module
        self.grid = ProcessGrid.of(module)
        check_device_count(self.grid.size)
        self.devices = range(self.grid.size)
        self.parameters, self.results = placements(module)
        self.executable = Executable(module, self.grid, kernels)

    def simulate(
        self, inputs: Sequence[Array], poison: bool | Poison = False, observer: Observer | None = None
    ) -> Simulation:
        """Takes global arrays and returns global and local results."""
        return self._joined(self.run(self._split(inputs, poison), observer))

    def per_device(self, inputs: Sequence[Array], poison: bool = False) -> list[list[Array]]:
        """Takes global arrays and returns the results of each device, which may disagree."""
        return unpacked_outputs(self.module, self.run(self._split(inputs, poison)))

    def repeat(
        self, inputs: Sequence[Array], times: int, tracer: Observer | None = None
    ) -> tuple[Simulation, list[float]]:
        """Runs the program several times on the same inputs. Returns the last results, and the seconds of each run
        without dividing inputs and joining outputs. The tracer sees the last run.
        """
        local = self._split(inputs, False)
        per_device, seconds = repeated(lambda last: self.run(local, tracer=tracer if last else None), times)
        return self._joined(per_device), seconds

    def _split(self, inputs: Sequence[Array], poison: bool | Poison) -> list[list[Array]]:
        local = split_inputs(inputs, self.parameters, self.devices, self.grid, poison, self.executable.kernels)
        return packed_inputs(self.module, local)

    def run(
        self, inputs: Sequence[Sequence[Array]], observer: Observer | None = None, tracer: Observer | None = None
    ) -> list[list[Array]]:
        """Takes the local inputs of each device and returns their local results."""
        return self.executable.run(self.devices, inputs, LocalFabric(), observer, tracer)

    def _joined(self, per_device: list[list[Array]]) -> Simulation:
        outputs = unpacked_outputs(self.module, per_device)
        return Simulation(join_outputs(outputs, self.results, self.grid, self.executable.kernels), outputs)


def run_devices(
    module: Module, inputs: Sequence[Sequence[Array]], kernels: KernelProvider = NUMPY
) -> list[list[Array]]:
    """Runs a per-device program with local inputs of each device; returns the local results of each."""
    grid = ProcessGrid.of(module)
    return Executable(module, grid, kernels).run(range(grid.size), inputs, LocalFabric())


@checked
def simulate(
    module: Module, inputs: Sequence[Array], poison: bool = False, kernels: KernelProvider = NUMPY
) -> list[Array]:
    """Runs a per-device program on all its devices. Takes global arrays, one per leaf of the parameters, and returns
    global arrays.

    The program is a LOCAL module, or one that another compiler partitioned. In the latter a parameter without a
    sharding takes one array for all devices, or one of dimensions [devices, ..] with each device's array; a result
    without a sharding is such an array.

    `poison` fills the padding of the inputs with NaN and largest integers instead of zeros; `kernels` computes the ops.

    Raises CompileError if the module is not partitioned, inputs do not fit, an op cannot be evaluated, only some
    devices of a group reach a collective, or devices disagree about a replicated result.
    """
    return SimulatedProgram(module, kernels).simulate(inputs, poison).outputs
