"""Machine code for single instructions of a plan, by the layouts of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.native.lower import lower
from ...codegen.native.native import native
from ...codegen.native.step import Layout, NativeStep
from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.control import Fusion
from ...ir.ops.structure import ParameterAttributes


@dataclass(frozen=True, slots=True)
class Chosen:
    """The machine code of an instruction, and the layouts that it wants of the operands."""

    step: NativeStep
    operands: tuple[Layout, ...]


def native_step(instruction: Instruction, operands: Sequence[Layout]) -> Chosen | None:
    """Returns the machine code of an instruction whose operands lie in these layouts; None if it has none."""
    op = instruction.op
    if not isinstance(op, Fusion) and not (op.is_fusible or op.sources(instruction.call)):
        return None
    try:
        lowered = lower(instruction.called()[0] if isinstance(op, Fusion) else alone(instruction))
    except NotEvaluable:
        return None
    code = native(lowered.kernel)
    lanes = lowered.kernel.buffers[len(lowered.parameters) + len(lowered.results) :]
    scratch = tuple(n * lane.bits // 8 for n, lane in zip(lowered.scratch, lanes, strict=True))
    return Chosen(NativeStep(code.address, scratch, (), code), tuple(Layout.dense(o.dims) for o in operands))


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
