"""A kernel provider that runs fusions, element-wise ops, moves, reductions and products by machine code.

Plans are arranged into tables of native steps, each compiled once per text. What has none runs by numpy, a fusion op by
op, and so does everything without llvmlite or a fused multiply-add.
"""

from __future__ import annotations

from ...codegen.native.compile_llvm import is_available
from ...codegen.native.lowerings import Lowerings
from ...codegen.native.narrow_sums import narrow_sum
from ...codegen.native.native_steps import loops_of
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Compile, Kernel, NotEvaluable, Role
from ..plan.interpreter import StepPlan
from ..plan.kernels import NumpyKernels
from .arrange import arranged


class NativeKernels(NumpyKernels):
    """Computes by machine code where possible."""

    def __init__(self) -> None:
        self._lowerings = Lowerings()

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        """Returns the kernel of a fusion that a table may hold, which runs only where none does: for empty values and
        those of dynamic sizes. Other ops are left to numpy until their plan is arranged, but for narrow sums, by which
        ranks combine arrays.
        """
        if instruction.op.role is not Role.FUSION:
            return narrow_sum(instruction)
        try:
            loops_of(instruction, self._lowerings).lowered()
        except NotEvaluable:
            return None
        return lambda *operands: compile(instruction.called()[0])(*operands)

    def arranged(self, plan: StepPlan, apart: bool = False) -> StepPlan:
        return arranged(plan, self._lowerings, apart) if is_available() else plan
