"""Mixed precision: ops whose operands and result are floats of several types.

XLA's verifier ignores the precision of floats: `f32[8] add(f32[8] a, bf16[8] b)` is valid. Back ends write such
programs when they fold conversions into ops. An op of mixed precision converts its operands to one type, computes in
it, and converts the result to the declared type. The computation type is the present type of highest precision that the
op accepts; for a reduction it is the type of its computation. Where a text omits the result shape, the result has that
type, or the type of one operand (`FloatTypes.typed_by`). Products (`FloatTypes.converts_result`) may also declare a
type that cannot hold their sums: `s32[] dot(f32[8] a, f32[8] b)` is the dot in f32, converted.

Ops that accept their types unchanged (a dot that adds bf16 products in f32, convert) are not of mixed precision in this
sense. Control flow forwards values unchanged, and so do ops that compute nothing, of which some reinterpret bits
(`FloatTypes.keeps_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..graph.algebra import Algebra
from ..graph.attributes import called_fields
from ..graph.dynamic_sizes import result_shape, same_bounds
from ..graph.instruction import Instruction
from ..graph.interfaces import Applies, floats_of
from ..graph.op import AnyOp, Kernel, OpCall, ShapeError, Value
from ..ops import numerics
from ..types.element_type import ElementType, precision
from ..types.shape import Shape, tuple_shape

KernelOfCall = Callable[[OpCall[Any]], Kernel]
Conversion = Callable[[ElementType, ElementType], Kernel]


def inferred_shape(op: AnyOp, operands: Sequence[Shape], attributes: Any) -> Shape:
    """Infers the result shape where the program declares none, also for mixed precision. Raises ShapeError."""
    try:
        return result_shape(op, operands, attributes, None)
    except ShapeError:
        floats = float_types(operands)
        for element in floats if len(floats) > 1 else ():
            with suppress(ShapeError):
                result = result_shape(op, [in_type(o, element) for o in operands], attributes, None)
                typed_by = floats_of(op).typed_by
                return result if typed_by is None else in_type(result, operands[typed_by].element)
        raise


def computed(instruction: Instruction) -> tuple[tuple[Shape, ...], Shape] | None:
    """Returns the operand and result shapes in which an op of mixed precision computes; None for other ops, including
    invalid ones.
    """
    op, declared = instruction.op, instruction.shape
    if _has_one_float(instruction) or op.is_control or floats_of(op).keeps_types:
        return None
    floats = _floats(instruction)
    if len(floats) < 2 and not floats_of(op).converts_result:
        return None
    for element in (*floats, None) if _folds_others(instruction) else (None, *floats):
        operands = tuple(in_type(o.shape, element) for o in instruction.operands)
        shape = in_type(declared, element)
        try:
            inferred = result_shape(op, operands, instruction.attributes, shape)
        except ShapeError:
            continue
        if floats_of(op).converts_result and shape.is_array:
            shape = shape.with_element(inferred.element)
        if same_bounds(inferred, shape):
            return None if element is None and shape == declared else (operands, shape)
    return None


def in_type(shape: Shape, element: ElementType | None) -> Shape:
    """Returns the shape with its floats in this type, or unchanged for None."""
    if element is None:
        return shape
    if shape.is_tuple:
        return tuple_shape(tuple(in_type(e, element) for e in shape.elements))
    return shape.with_element(element) if shape.element.is_float else shape


def float_types(shapes: Iterable[Shape]) -> list[ElementType]:
    """Returns the float types in the shapes, highest precision (in XLA's sense: widest range) first."""
    found = dict.fromkeys(leaf.element for shape in shapes for leaf in shape.leaves() if leaf.element.is_float)
    return sorted(found, key=precision, reverse=True)


def kernel(instruction: Instruction, make: KernelOfCall, convert: Conversion = numerics.convert) -> Kernel:
    """Returns the op's kernel, surrounded by conversions if precision is mixed. Raises the errors of the kernel.

    `make` gives the kernel of the op for a call, `convert` the function from one element type to another.
    """
    call, shapes = instruction.call, computed(instruction)
    if shapes is None:
        return make(call)
    operands, shape = shapes
    function = make(replace(call, operands=operands, shape=shape))
    before = [_conversion(s, t, convert) for s, t in zip(call.operands, operands, strict=True)]
    after = _conversion(shape, call.shape, convert)

    def run(*values: Value) -> Value:
        given = values[len(values) - len(before) :]  # the random state may precede the operands
        converted = (into(v) for into, v in zip(before, given, strict=True))
        return after(function(*values[: -len(before)], *converted))

    return run


def _conversion(source: Shape, target: Shape, convert: Conversion) -> Kernel:
    parts = [_conversion(s, t, convert) for s, t in zip(source.elements, target.elements, strict=True)]
    into = None if source.element is target.element else convert(source.element, target.element)

    def run(value: Any) -> Any:
        if target.is_tuple:
            return tuple(part(v) for part, v in zip(parts, value, strict=True))
        return value if into is None else into(value)

    return run


def _has_one_float(instruction: Instruction) -> bool:
    """Whether operands and result are floats of one type: a fast check of the usual case."""
    first = instruction.shape.element
    for operand in instruction.operands:
        if operand.shape.element is not first:
            return False
    return first.is_float and not (called_fields(type(instruction.attributes)) and instruction.called())


def _folds_others(instruction: Instruction) -> bool:
    """Whether an op folds elements, or starts from initial values, of other float types than its computation takes.
    Its result may be of one type with all of these, so that it is inferred from operands of any precision. Collectives
    send their operands in the type that these have.
    """
    op = instruction.op
    applies = None if op.is_collective or op.algebra is not Algebra.FOLD else op.interface(Applies)
    if applies is None:
        return False
    taken = getattr(instruction.attributes, applies.applied).parameters
    given = [o.shape.element for n, o in enumerate(instruction.operands) if n in applies.folded(instruction.call)]
    return {e for e in given if e.is_float} != {p.shape.element for p in taken if p.shape.element.is_float}


def _floats(instruction: Instruction) -> list[ElementType]:
    """Returns the float types of operands, result and applied computations, highest precision first."""
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    shapes += [p.shape for computation in instruction.called() for p in computation.parameters]
    return float_types(shapes)
