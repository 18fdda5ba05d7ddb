"""Machine code for single instructions of a plan, by the layouts of their operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import movement, pooled_of
from ...ir.graph.op import AnyOp, OpCall, Role
from ...ir.ops.structure import ParameterAttributes
from ...ir.types.element_type import F32, S16, S32, S64, ElementType, precision
from ...ir.types.shape import Shape
from .lowerings import Alike, Lowerings
from .products.narrow import OF_PAIRS
from .products.product import is_product, is_provided, narrow_operand, product_plan, product_step
from .step import NativeStep, StridedLayout

_RESULT = 2  # the number of a product's result, after its operands


@dataclass(frozen=True, slots=True)
class Parts:
    """Native steps that compute an instruction together. Each has the numbers of its arrays: operands first, then
    results, then dense `temporaries` of these shapes. Results are dense, or lie as `result` says.
    """

    steps: tuple[tuple[NativeStep, tuple[int, ...]], ...]
    temporaries: tuple[Shape, ...] = ()
    result: StridedLayout | None = None


def native_parts(
    instruction: Instruction, operands: Sequence[StridedLayout], lowerings: Lowerings,
    wanted: StridedLayout | None = None,
) -> Parts | None:  # fmt: skip
    """Returns the machine code of an instruction whose operands have these layouts; None if it has none. Results are
    dense, but that of a product has the `wanted` layout, if that takes no more copies.
    """
    op, call = instruction.op, instruction.call
    try:
        if is_product(op):
            turned = None if wanted is None else _product_in(op, call, operands, wanted)
            return turned or _product(op, call, operands, lowerings)
        if not has_loops(instruction):
            return None
        numbers = tuple(range(len(operands) + instruction.shape.num_leaves))
        return Parts(((loops_of(instruction, lowerings).step(operands), numbers),))
    except NotEvaluable:
        return None


def has_loops(instruction: Instruction) -> bool:
    """Whether an op is of a kind that may have loop kernels."""
    op, moves = instruction.op, movement(instruction.op)
    is_loops = op.role is Role.FUSION or op.is_fusible or moves.sources(instruction.call) is not None
    return is_loops or moves.updates(instruction.call) is not None or pooled_of(instruction) is not None


def loops_of(instruction: Instruction, lowerings: Lowerings) -> Alike:
    """Returns the loop kernels of a fusion, or of another instruction alone. Constant scalar operands become constants
    there. Raises NotEvaluable as `lower` does.
    """
    if instruction.op.role is Role.FUSION:
        return lowerings.of(instruction.called()[0])
    alone = Computation("alone")
    operands: list[Instruction] = []
    for operand in instruction.operands:
        operands.append(alone.add("parameter", [], ParameterAttributes(len(operands)), operand.shape))
        if operand.op.role is Role.CONSTANT and operand.shape.is_scalar:
            operands[-1] = alone.add(operand.opcode, [], operand.attributes, operand.shape)
    alone.root = alone.add(instruction.opcode, operands, instruction.attributes, instruction.shape)
    return lowerings.of(alone)


def _product(op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout], lowerings: Lowerings) -> Parts | None:
    """Returns the steps of a product, with conversions of narrow operands before it and of the result after."""
    wide = widened(op, call, operands)
    if wide is None:
        return None
    before, after = list[tuple[NativeStep, tuple[int, ...]]](), list[tuple[NativeStep, tuple[int, ...]]]()
    dense = StridedLayout.dense(wide.shape.dims)
    layouts, numbers, temporaries = list(operands), [0, 1, 2], list[Shape]()
    for n, kernels in conversions(call, wide, lowerings):
        numbers[n] = 3 + len(temporaries)
        temporaries.append((*wide.operands, wide.shape)[n])
        if n == _RESULT:
            after.append((kernels.step([dense]), (numbers[n], n)))
        else:
            before.append((kernels.step([operands[n]]), (n, numbers[n])))
            layouts[n] = StridedLayout.dense(wide.operands[n].dims)
    product = product_step(op, wide, layouts, dense)
    if product is None:
        return None
    return Parts((*before, (product, tuple(numbers)), *after), tuple(temporaries))


def widened(op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout] | None = None) -> OpCall[Any] | None:
    """Returns the product in the types that native code computes in, for operands of these layouts or dense ones;
    operands and result of another type are converted. One operand stays narrow where tiles read it. None for other ops
    and types, and without BLAS or a compiler.
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
    layouts = operands or [StridedLayout.dense(s.dims) for s in call.operands]
    for found in _narrow(call, replace(call, operands=(left, right), shape=out)):
        read = [
            layout if new.element.bits == old.element.bits else StridedLayout.dense(old.dims)
            for layout, new, old in zip(layouts, found.operands, call.operands, strict=True)
        ]
        if product_plan(op, found, read, StridedLayout.dense(out.dims)) is not None:
            return found
    return replace(call, operands=(left, right), shape=out)


def _narrow(call: OpCall[Any], wide: OpCall[Any]) -> Iterator[OpCall[Any]]:
    """Yields the products that convert one operand and read the other as it is: first those by pairs, which take half
    as long. The second operand mostly has the columns that tiles read.
    """
    has_halves = all(operand.element.name in OF_PAIRS for operand in call.operands)
    for element in (*[S16] * has_halves, wide.shape.element):
        for number in (0, 1):
            operands = list(call.operands)
            operands[number] = replace(operands[number], element=element)
            found = replace(wide, operands=tuple(operands))
            if narrow_operand(found) is not None:
                yield found


def widened_bytes(op: AnyOp, call: OpCall[Any]) -> Sequence[int]:
    """Returns the bytes of the operands and the result of a product that are converted, in the type that it is computed
    in; none for other ops.
    """
    wide = widened(op, call)
    return () if wide is None else [target.byte_size for _, _, target in _converted(call, wide)]


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


def conversions(call: OpCall[Any], wide: OpCall[Any], lowerings: Lowerings) -> Iterator[tuple[int, Alike]]:
    """Yields the kernels that convert the operands of a product to those of the `wide` one, each with the operand's
    number, and its result back, with 2.
    """
    for number, narrow, widest in _converted(call, wide):
        source, target = (widest, narrow) if number == _RESULT else (narrow, widest)
        alone = Computation("conversion")
        operand = alone.add("parameter", [], ParameterAttributes(0), source)
        alone.root = alone.add("convert", [operand], shape=replace(source, element=target.element))
        yield number, lowerings.of(alone)


def _converted(call: OpCall[Any], wide: OpCall[Any]) -> Iterator[tuple[int, Shape, Shape]]:
    """Yields the numbers of the operands and the result of a product that are converted, and their shapes before and in
    the `wide` one.
    """
    pairs = zip((*call.operands, call.shape), (*wide.operands, wide.shape), strict=True)
    for number, (narrow, widest) in enumerate(pairs):
        if narrow.element.bits != widest.element.bits:
            yield number, narrow, widest


def _product_in(
    op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout], wanted: StridedLayout
) -> Parts | None:
    """Returns the step of a product whose result has a wanted layout; None if a dense result takes less scratch memory,
    so fewer copies.
    """
    found = product_step(op, call, operands, wanted)
    dense = product_step(op, call, operands, StridedLayout.dense(call.shape.dims))
    if found is None or dense is None or sum(found.scratch) > sum(dense.scratch):
        return None
    return Parts(((found, (0, 1, 2)),), result=wanted)
