"""A kernel provider that runs fusions, element-wise ops, moves, reductions and products by native kernels.

Other ops fall back to numpy, a fusion to its ops one by one. Kernels are compiled once per text; without llvmlite or a
fused multiply-add they run by numpy, a block of rows at a time.
"""

from __future__ import annotations

from ...codegen.native.compile_llvm import is_available
from ...codegen.native.lowerings import Lowerings
from ...codegen.native.native_steps import loops_of
from ...codegen.native.numpy_run import numpy_kernel
from ...codegen.native.products.product import is_product
from ...cost.host import HOST
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import movement, pooled_of, takes_arrays
from ...ir.graph.monoid import reduction_monoid
from ...ir.graph.op import Compile, Kernel, NotEvaluable, Role
from ...ir.ops.reduce import Reduce
from ..plan.interpreter import StepPlan
from ..plan.kernels import NumpyKernels
from .arrange import arranged
from .native_kernel import NativeKernel


class NativeKernels(NumpyKernels):
    """Computes by native kernels where possible."""

    def __init__(self, small: int = HOST.numpy_elements, by_numpy: bool | None = None) -> None:
        self.small = small
        self.by_numpy = not is_available() if by_numpy is None else by_numpy
        self._lowerings = Lowerings()

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        """Returns the kernel of a fusion, of a product, or of another op that is worth one of its own."""
        has_product = is_product(instruction.op) and not self.by_numpy
        if instruction.op.role is not Role.FUSION and not has_product and not self._is_single(instruction):
            return None
        try:
            if not self.by_numpy:
                return NativeKernel(instruction, self._lowerings)
            return numpy_kernel(loops_of(instruction, self._lowerings).lowered(), instruction.shape.is_tuple)
        except NotEvaluable:
            return None

    def _is_single(self, instruction: Instruction) -> bool:
        """Whether an op is worth a kernel of its own: moves are mostly views. Scalar ops may be those of a reducer,
        which numpy applies to arrays.
        """
        if not instruction.shape.is_array or not instruction.shape.dims or not instruction.operands:
            return False
        op, call = instruction.op, instruction.call
        if movement(op).sources(call) is not None:
            return False
        if not all(o.is_array for o in call.operands):
            return False
        if movement(op).updates(call) is not None:  # by numpy the op's own kernel takes all at once
            return not self.by_numpy
        if sum(s.num_elements for s in (*call.operands, call.shape)) < self.small:
            return False
        if isinstance(op, Reduce):
            return not self.by_numpy or reduction_monoid(call.attributes.to_apply) is not None  # else as updates
        return takes_arrays(op, call) or (pooled_of(instruction) is not None and not self.by_numpy)

    def arranged(self, plan: StepPlan) -> StepPlan:
        return plan if self.by_numpy else arranged(plan, self._lowerings)
