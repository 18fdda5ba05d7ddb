"""Machine code for single instructions of a plan, by the layouts of their operands."""

from __future__ import annotations

from collections.abc import Sequence

from ...codegen.native.lowerings import Alike, Lowerings
from ...codegen.native.products.product import is_product, product_step
from ...codegen.native.step import Layout, NativeStep
from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.control import Fusion
from ...ir.ops.structure import ParameterAttributes


def product_in(instruction: Instruction, operands: Sequence[Layout], wanted: Layout) -> NativeStep | None:
    """Returns the machine code of a product whose result lies in a wanted layout; None for other ops, and if a dense
    result takes less scratch memory, so fewer copies.
    """
    op, call = instruction.op, instruction.call
    found = product_step(op, call, operands, wanted)
    dense = product_step(op, call, operands, Layout.dense(call.shape.dims))
    if found is None or dense is None or sum(found.scratch) > sum(dense.scratch):
        return None
    return found


def native_step(
    instruction: Instruction, operands: Sequence[Layout], lowerings: Lowerings, kernels: Alike | None = None
) -> NativeStep | None:
    """Returns the machine code of an instruction whose operands lie in these layouts, and whose results are dense; None
    if it has none. `kernels` are its loop kernels, if they are known.
    """
    try:
        if kernels is None:
            op, call = instruction.op, instruction.call
            if is_product(op):
                return product_step(op, call, operands, Layout.dense(call.shape.dims))
            is_loops = isinstance(op, Fusion) or op.is_fusible or op.sources(call) is not None
            if not is_loops and op.updates(call) is None:
                return None
            kernels = lowerings.of(instruction.called()[0] if isinstance(op, Fusion) else alone(instruction))
        return kernels.step(operands)
    except NotEvaluable:
        return None


def alone(instruction: Instruction) -> Computation:
    """Returns a computation of this instruction alone. Constant scalars are known to it, beside being parameters."""
    result = Computation("alone")
    operands: list[Instruction] = []
    for operand in instruction.operands:
        operands.append(result.add("parameter", [], ParameterAttributes(len(operands)), operand.shape))
        if operand.op.role is Role.CONSTANT and operand.shape.is_scalar:
            operands[-1] = result.add(operand.opcode, [], operand.attributes, operand.shape)
    result.root = result.add(instruction.opcode, operands, instruction.attributes, instruction.shape)
    return result
