"""Machine code for single instructions of a plan, by the layouts of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen.native.lowerings import Alike, Lowerings
from ...codegen.native.products.product import is_product, is_provided, product_step
from ...codegen.native.step import NativeStep, StridedLayout
from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import movement
from ...ir.graph.op import AnyOp, OpCall, Role
from ...ir.ops.structure import ParameterAttributes
from ...ir.types.element_type import F32, S32, S64, ElementType, precision
from ...ir.types.shape import Shape


@dataclass(frozen=True, slots=True)
class Parts:
    """Native steps that compute an instruction together. Each has the numbers of its arrays: operands first, then
    results, then dense `temporaries` of these shapes.
    """

    steps: tuple[tuple[NativeStep, tuple[int, ...]], ...]
    temporaries: tuple[Shape, ...] = ()


def native_parts(
    instruction: Instruction, operands: Sequence[StridedLayout], lowerings: Lowerings, kernels: Alike | None = None
) -> Parts | None:
    """Returns the machine code of an instruction whose operands have these layouts, and whose results are dense; None
    if it has none. `kernels` are its loop kernels, if they are known.
    """
    found = native_step(instruction, operands, lowerings, kernels)
    if found is not None:
        return Parts(((found, tuple(range(len(operands) + instruction.shape.num_leaves))),))
    try:
        return _widened(instruction, operands, lowerings)
    except NotEvaluable:
        return None


def _widened(instruction: Instruction, operands: Sequence[StridedLayout], lowerings: Lowerings) -> Parts | None:
    """Returns the steps of a product that convert narrow operands before it and the result after; None for other ops.
    """
    op, call = instruction.op, instruction.call
    wide = widened_call(op, call)
    if wide is None or wide == call:
        return None
    steps: list[tuple[NativeStep, tuple[int, ...]]] = []
    layouts, numbers, temporaries = list(operands), [0, 1, 2], list[Shape]()
    for n, (narrow, shape) in enumerate(zip(call.operands, wide.operands, strict=True)):
        if narrow.element.bits != shape.element.bits:
            layouts[n], numbers[n] = StridedLayout.dense(shape.dims), 3 + len(temporaries)
            temporaries.append(shape)
            steps.append((lowerings.of(conversion(narrow, shape.element)).step([operands[n]]), (n, numbers[n])))
    is_narrow = call.shape.element.bits != wide.shape.element.bits
    if is_narrow:
        numbers[2] = 3 + len(temporaries)
        temporaries.append(wide.shape)
    dense = StridedLayout.dense(wide.shape.dims)
    product = product_step(op, wide, layouts, dense)
    if product is None:
        return None
    steps.append((product, tuple(numbers)))
    if is_narrow:
        steps.append((lowerings.of(conversion(wide.shape, call.shape.element)).step([dense]), (numbers[2], 2)))
    return Parts(tuple(steps), tuple(temporaries))


def widened_call(op: AnyOp, call: OpCall[Any]) -> OpCall[Any] | None:
    """Returns the product in the type that native code computes in; operands and result of another type are converted.
    None for other ops and types, and without BLAS or a compiler.
    """
    shapes = (*call.operands, call.shape)
    if not is_product(op) or not is_provided() or len(shapes) != 3:
        return None
    if any(not s.is_array or any(s.dynamic) or s.element.numpy is None for s in shapes):
        return None
    wide = _computed_in([s.element for s in shapes])
    if wide is None:
        return None
    left, right, out = (replace(s, element=wide) for s in shapes)
    return replace(call, operands=(left, right), shape=out)


def _computed_in(elements: Sequence[ElementType]) -> ElementType | None:
    """Returns the accumulator type; None if products have none for these types, or if converting an operand to the
    widest type of all rounds it.
    """
    if all(e.is_integer and e.bits >= 8 for e in elements):
        return S64 if max(e.bits for e in elements) > 32 else S32
    if not all(e.is_float for e in elements):
        return None
    highest = max(elements, key=precision)
    if highest.bits >= 32:
        return highest
    return F32 if all(e is highest for e in elements[:2]) else None


def conversion(shape: Shape, element: ElementType) -> Computation:
    """Returns a computation that converts an array."""
    result = Computation("conversion")
    operand = result.add("parameter", [], ParameterAttributes(0), shape)
    result.root = result.add("convert", [operand], shape=replace(shape, element=element))
    return result


def product_in(instruction: Instruction, operands: Sequence[StridedLayout], wanted: StridedLayout) -> NativeStep | None:
    """Returns the machine code of a product whose result has a wanted layout; None for other ops, and if a dense result
    takes less scratch memory, so fewer copies.
    """
    op, call = instruction.op, instruction.call
    found = product_step(op, call, operands, wanted)
    dense = product_step(op, call, operands, StridedLayout.dense(call.shape.dims))
    if found is None or dense is None or sum(found.scratch) > sum(dense.scratch):
        return None
    return found


def native_step(
    instruction: Instruction, operands: Sequence[StridedLayout], lowerings: Lowerings, kernels: Alike | None = None
) -> NativeStep | None:
    """Returns the machine code of an instruction whose operands have these layouts, and whose results are dense; None
    if it has none. `kernels` are its loop kernels, if they are known.
    """
    try:
        if kernels is None:
            op, call = instruction.op, instruction.call
            if is_product(op):
                return product_step(op, call, operands, StridedLayout.dense(call.shape.dims))
            is_fusion = op.role is Role.FUSION
            is_loops = is_fusion or op.is_fusible or movement(op).sources(call) is not None
            if not is_loops and movement(op).updates(call) is None:
                return None
            kernels = lowerings.of(instruction.called()[0] if is_fusion else alone(instruction))
        return kernels.step(operands)
    except NotEvaluable:
        return None


def alone(instruction: Instruction) -> Computation:
    """Returns a computation of this instruction alone. Constant scalar operands become constants there."""
    result = Computation("alone")
    operands: list[Instruction] = []
    for operand in instruction.operands:
        operands.append(result.add("parameter", [], ParameterAttributes(len(operands)), operand.shape))
        if operand.op.role is Role.CONSTANT and operand.shape.is_scalar:
            operands[-1] = result.add(operand.opcode, [], operand.attributes, operand.shape)
    result.root = result.add(instruction.opcode, operands, instruction.attributes, instruction.shape)
    return result
