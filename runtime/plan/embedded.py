"""Turns plans of computations that ops apply to elements into Python functions.

Reducers and comparators are small and run often, so a plan of plain compute steps becomes one closure, and a plan with
a single op on its parameters becomes that op's kernel. Values may be arrays of any shape if all ops of the computation
are element-wise; see `ir.graph.monoid.elementwise_kernel`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ...ir.graph.computation import Computation
from ...ir.graph.op import Kernel, NotEvaluable, Value
from ...ir.time_limit import check_time
from ...ir.tools.process_grid import ProcessGrid
from ..fabric.collective import GridCollective
from .interpreter import NO_DEVICE, Interpreter, StepPlan
from .steps import ComputeStep, flatten, unflatten


def embedded_kernel(plan: StepPlan, computation: Computation, grid: ProcessGrid) -> Kernel:
    """Returns the computation as a function from its arguments to its value. It must contain no collective."""
    shapes = [p.shape for p in computation.parameters]
    simple = all(type(step) is ComputeStep for step in plan.steps)
    if simple and not any(s.is_tuple for s in shapes) and not computation.root.shape.is_tuple:
        return _closure(plan)

    interpreter = Interpreter(grid, NoFabric())

    def run(*arguments: Value) -> Value:
        leaves = [leaf for value, shape in zip(arguments, shapes, strict=True) for leaf in flatten(value, shape)]
        return unflatten(interpreter.execute(plan, [plan.frame(NO_DEVICE, leaves)])[0], computation.root.shape)

    return run


def _closure(plan: StepPlan) -> Kernel:
    steps = [(step.kernel, step.reads, step.writes[0]) for step in plan.steps if isinstance(step, ComputeStep)]
    template, (result,), count = plan.template, plan.results, len(plan.parameters)
    if len(steps) == 1 and steps[0][1] == plan.parameters and steps[0][2] == result:
        kernel = steps[0][0]

        def alone(*arguments: Value) -> Value:
            check_time()
            return kernel(*arguments)

        return alone

    def run(*arguments: Value) -> Value:
        check_time()
        frame = template[:]
        frame[1 : 1 + count] = arguments  # parameters have the first buffers
        for kernel, reads, write in steps:
            frame[write] = kernel(*[frame[i] for i in reads])
        return frame[result]

    return run


class NoFabric:
    """Rejects collectives in computations that are applied to elements."""

    needs_progress = False

    def progress(self) -> None:
        """Does nothing."""

    def start(self, collective: GridCollective, devices: list[int], operands: list[list[Value]]) -> NoReturn:
        raise NotEvaluable(f"{collective.kind} cannot stand inside a computation that is applied to elements")

    def wait(self, handle: Any) -> NoReturn:
        raise AssertionError("nothing was started")
