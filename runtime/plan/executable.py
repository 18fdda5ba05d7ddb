"""Compiles modules for a process grid, and refuses those that cannot run there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.diagnostics import CompileError, fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import movement
from ...ir.graph.module import Module
from ...ir.graph.op import Value
from ...ir.tools.expanded import check_expanded
from ...ir.tools.library_calls import without_library_calls
from ...ir.tools.process_grid import ProcessGrid
from ...ir.tools.unknown_values import require_values
from ...ir.types.literal import Array
from ...ir.types.shape import Shape
from .call_graph import live_in
from .compile import Compilation
from .interpreter import Fabric, Interpreter, Observer, StepPlan, label
from .kernels import NUMPY, KernelProvider, PlanArranger
from .limits import memory, too_large


class Executable:
    """A module compiled for a process grid, which can be run any number of times.

    Raises CompileError for errors known before the run: calls without end, values that are too large, ops that
    cannot be evaluated, collectives and manual regions that do not fit the grid.
    """

    def __init__(self, module: Module, grid: ProcessGrid, kernels: KernelProvider = NUMPY) -> None:
        check_expanded(module)
        _check_sizes(module)
        require_values(live_in(module.entry), "to run the program")
        self.module = module
        self.grid = grid
        self.kernels = kernels
        module = without_library_calls(module)
        self.compilation = Compilation(module, grid, kernels)
        with np.errstate(all="ignore"), paused_collector():
            self.plan = self.compilation.plan(module.entry)
            if self.compilation.refused:
                raise CompileError(self.compilation.refused)
            self.compilation.forget()
            self.arranged = self._arranged()
        self.spare: list[dict[Any, Any]] = []  # what earlier runs kept; each takes one, so that runs may overlap
        self.parameter_shapes = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
        """The leaves of all parameters, in order: what one device takes."""
        self._results = [n for n, leaf in enumerate(module.entry.root.shape.leaves()) if leaf.is_array]
        self._largest = _largest(module)

    def run(
        self, devices: Sequence[int], inputs: Sequence[Sequence[Array]], fabric: Fabric,
        observer: Observer | None = None, tracer: Observer | None = None,
    ) -> list[list[Array]]:  # fmt: skip
        """Runs the program on these devices, each with its own inputs; returns the arrays of the result per device. An
        observer sees single instructions; a tracer, which may take its place, the steps as they run otherwise.

        Raises CompileError if inputs do not fit the parameters or the program cannot be run.
        """
        if len(inputs) != len(devices):
            fail(f"inputs for {len(devices)} devices are needed, {len(inputs)} were given")
        checked = [check_inputs(self.parameter_shapes, values, self.kernels) for values in inputs]
        _check_together(self._largest, len(devices))
        plan = self.arranged if observer is None else self.observed
        frames = [plan.frame(device, values) for device, values in zip(devices, checked, strict=True)]
        del checked, inputs
        kept = self.spare.pop() if self.spare else {}
        with np.errstate(all="ignore"):
            results = Interpreter(self.grid, fabric, observer or tracer, kept).execute(plan, frames)
        self.spare.append(kept)
        return [[values[n] for n in self._results] for values in results]

    @cached_property
    def observed(self) -> StepPlan:
        """The plan with one step per instruction, as observers see it."""
        return self._arranged(apart=True)

    def _arranged(self, apart: bool = False) -> StepPlan:
        return self.kernels.arranged(self.plan, apart) if isinstance(self.kernels, PlanArranger) else self.plan


def _check_sizes(module: Module) -> None:
    """Raises CompileError at a value that numpy or this machine cannot hold, before anything is allocated."""
    first: dict[Shape, Instruction] = {}
    for computation in module:
        for instruction in computation:
            first.setdefault(instruction.shape, instruction)
    for shape, instruction in first.items():
        problem = too_large(shape)
        if problem:
            fail(f"{label(instruction)}: {problem}", instruction.location)


def _largest(module: Module) -> Instruction | None:
    """Returns the op with the largest result. Values that are only moved do not count, because they may be views."""
    computed = (i for c in module for i in c if i.op.is_elementwise and not movement(i.op).element_sources)
    return max(computed, key=lambda i: i.shape.byte_size, default=None)


def _check_together(largest: Instruction | None, devices: int) -> None:
    """Raises CompileError if this many devices cannot hold the largest value at once, since they run in step."""
    if largest is not None and devices > 1 and largest.shape.byte_size * devices > memory():
        fail(f"{label(largest)}: {largest.shape.without_layout()} takes {largest.shape.byte_size * devices:,} bytes on "
             f"{devices} devices together, the limit of this process is {memory():,}", largest.location)  # fmt: skip


def check_inputs(shapes: Sequence[Shape], inputs: Sequence[Array], kernels: KernelProvider = NUMPY) -> list[Value]:
    """Returns the inputs as arrays. Raises CompileError unless there is one of the right type and dimensions per shape.
    """
    wanted = [shape for shape in shapes if shape.is_array]
    if len(inputs) != len(wanted):
        fail(f"the program takes {len(wanted)} arrays, {len(inputs)} were given")
    rest = iter(enumerate(inputs))
    return [_check_input(shape, *next(rest), kernels) if shape.is_array else None for shape in shapes]


def _check_input(shape: Shape, number: int, value: Array, kernels: KernelProvider) -> Array:
    array = np.asarray(value)
    if array.shape != shape.dims:
        fail(f"input {number} has dimensions {list(array.shape)}, the program takes {shape.without_layout()}")
    if array.dtype != kernels.numpy_type(shape.element):
        fail(f"input {number} has element type {array.dtype}, the program takes {shape.without_layout()}")
    return array
