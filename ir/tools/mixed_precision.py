"""Mixed precision: ops whose operands and result are floats of several types.

XLA's verifier does not look at the precision of floats: `f32[8] add(f32[8] a, bf16[8] b)` is an add. Back ends write
such programs where they fold conversions into ops. An op of mixed precision means: operands are converted to one type,
the op is done in it, its result converted to what is declared. That type is the one of highest precision present with
which the op's own rules are content; for a reduction that is the type of its computation. Where a text leaves the
result shape out, the result has that type, or that of one operand (`Op.typed_by`). Products (`Op.converts_result`) may
also declare what cannot hold their sums: `s32[] dot(f32[8] a, f32[8] b)` is the dot in f32, converted.

Ops that fit as they are (a dot that adds bf16 products in f32, convert) are not of mixed precision in this sense.
Control flow passes values as they are, and so do ops that compute nothing (`Op.keeps_types`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..graph.dynamic_sizes import result_shape, same_bounds
from ..graph.instruction import Instruction
from ..graph.op import AnyOp, Compile, Kernel, ShapeError, Value
from ..ops import numerics
from ..types.element_type import ElementType, precision
from ..types.shape import Shape, tuple_shape


def inferred_shape(op: AnyOp, operands: Sequence[Shape], attributes: Any) -> Shape:
    """The result shape where the program declares none, also where floats of several types meet. Raises ShapeError."""
    try:
        return result_shape(op, operands, attributes, None)
    except ShapeError:
        floats = float_types(operands)
        for element in floats if len(floats) > 1 else ():
            with suppress(ShapeError):
                result = result_shape(op, [in_type(o, element) for o in operands], attributes, None)
                return result if op.typed_by is None else in_type(result, operands[op.typed_by].element)
        raise


def computed(instruction: Instruction) -> tuple[tuple[Shape, ...], Shape] | None:
    """The shapes of operands and result with which an op of mixed precision computes; None for others, also for those
    that do not fit at all.
    """
    op, declared = instruction.op, instruction.shape
    if op.is_control or op.keeps_types or _has_one_float(instruction):
        return None
    floats = _floats(instruction)
    if len(floats) < 2 and not op.converts_result:
        return None
    for element in (None, *floats):
        operands = tuple(in_type(o.shape, element) for o in instruction.operands)
        shape = in_type(declared, element)
        try:
            inferred = result_shape(op, operands, instruction.attributes, shape)
        except ShapeError:
            continue
        if op.converts_result and shape.is_array:
            shape = shape.with_element(inferred.element)
        if same_bounds(inferred, shape):
            return None if element is None and shape == declared else (operands, shape)
    return None


def in_type(shape: Shape, element: ElementType | None) -> Shape:
    """The shape with floats of this type; as it is for None."""
    if element is None:
        return shape
    if shape.is_tuple:
        return tuple_shape(tuple(in_type(e, element) for e in shape.elements))
    return shape.with_element(element) if shape.element.is_float else shape


def float_types(shapes: Iterable[Shape]) -> list[ElementType]:
    """The types of floats in the shapes, that of highest precision first: as in XLA, the one with the widest range."""
    found = dict.fromkeys(leaf.element for shape in shapes for leaf in shape.leaves() if leaf.element.is_float)
    return sorted(found, key=precision, reverse=True)


def kernel(instruction: Instruction, compile: Compile) -> Kernel:
    """The op's kernel, between conversions where its precision is mixed. Raises what the op's kernel raises."""
    call, shapes = instruction.call, computed(instruction)
    if shapes is None:
        return instruction.op.kernel(call, compile)
    operands, shape = shapes
    function = instruction.op.kernel(replace(call, operands=operands, shape=shape), compile)
    before = [_conversion(s, t) for s, t in zip(call.operands, operands, strict=True)]
    after = _conversion(shape, call.shape)

    def run(*values: Value) -> Value:
        given = values[len(values) - len(before) :]  # before the operands there may be the random state
        converted = (convert(v) for convert, v in zip(before, given, strict=True))
        return after(function(*values[: -len(before)], *converted))

    return run


def _conversion(source: Shape, target: Shape) -> Kernel:
    parts = [_conversion(s, t) for s, t in zip(source.elements, target.elements, strict=True)]
    convert = None if source.element is target.element else numerics.convert(source.element, target.element)

    def run(value: Any) -> Any:
        if target.is_tuple:
            return tuple(part(v) for part, v in zip(parts, value, strict=True))
        return value if convert is None else convert(value)

    return run


def _has_one_float(instruction: Instruction) -> bool:
    """Whether operands and result are floats of one type: the usual case, told without looking at leaves."""
    first = instruction.shape.element
    return first.is_float and not instruction.called() and all(o.shape.element is first for o in instruction.operands)


def _floats(instruction: Instruction) -> list[ElementType]:
    """The float types of operands, result and computations that the op applies, that of highest precision first."""
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    shapes += [p.shape for computation in instruction.called() for p in computation.parameters]
    return float_types(shapes)
