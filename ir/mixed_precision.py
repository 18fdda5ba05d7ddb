"""Mixed precision: ops whose operands and result are floats of several types.

XLA's verifier does not look at the precision of floats: `f32[8] add(f32[8] a, bf16[8] b)` is an add. Back ends write
such programs where they fold conversions into ops. An op of mixed precision means: operands are converted to one type,
the op is done in it, its result converted to what is declared. That type is the one of highest precision present with
which the op's own rules are content; for a reduction that is the type of its computation. Where a text leaves the
result shape out, the result has that type.

Ops that fit as they are (a dot that adds bf16 products in f32, convert) are not of mixed precision in this sense.
Assumption: control flow passes values as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import ml_dtypes

from .dynamic_sizes import result_shape, same_bounds
from .element_type import ElementType
from .instruction import Instruction
from .op import AnyOp, Compile, Kernel, ShapeError, Value
from .shape import Shape, tuple_shape


def fits(instruction: Instruction, element: ElementType | None = None) -> bool:
    """Whether the op's rules give the declared shape, with all floats of this type if one is given. Raises ShapeError
    where they give none.
    """
    declared = in_type(instruction.shape, element)
    operands = [in_type(o.shape, element) for o in instruction.operands]
    return same_bounds(result_shape(instruction.op, operands, instruction.attributes, declared), declared)


def inferred_shape(op: AnyOp, operands: Sequence[Shape], attributes: Any) -> Shape:
    """The result shape where the program declares none, also where floats of several types meet. Raises ShapeError."""
    try:
        return result_shape(op, operands, attributes, None)
    except ShapeError:
        floats = float_types(operands)
        for element in floats if len(floats) > 1 else ():
            with suppress(ShapeError):
                return result_shape(op, [in_type(o, element) for o in operands], attributes, None)
        raise


def common_type(instruction: Instruction) -> ElementType | None:
    """The type in which an op of mixed precision computes; None for others, also for those that do not fit at all."""
    op = instruction.op
    if op.is_control or not _has_several_floats(instruction):
        return None
    for element in (None, *_floats(instruction)):
        try:
            if fits(instruction, element):
                return element
        except ShapeError:
            continue
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
    return sorted(found, key=lambda element: -float(cast(Any, ml_dtypes).finfo(element.numpy).max))


def kernel(instruction: Instruction, compile: Compile) -> Kernel:
    """The op's kernel, between conversions where its precision is mixed. Raises what the op's kernel raises."""
    call = instruction.call
    element = common_type(instruction)
    if element is None:
        return instruction.op.kernel(call, compile)
    operands = tuple(in_type(s, element) for s in call.operands)
    function = instruction.op.kernel(replace(call, operands=operands, shape=in_type(call.shape, element)), compile)

    def run(*values: Value) -> Value:
        result = function(*(_converted(v, s) for v, s in zip(values, operands, strict=True)))
        return _converted(result, call.shape)

    return run


def _converted(value: Any, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_converted(v, s) for v, s in zip(value, shape.elements, strict=True))
    return value.astype(shape.element.numpy) if shape.element.is_float else value


def _has_several_floats(instruction: Instruction) -> bool:
    first = instruction.shape.element
    if first.is_float and not instruction.called() and all(o.shape.element is first for o in instruction.operands):
        return False  # the usual case, without looking at leaves
    return len(_floats(instruction)) > 1


def _floats(instruction: Instruction) -> list[ElementType]:
    """The float types of operands, result and computations that the op applies, that of highest precision first."""
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    shapes += [p.shape for computation in instruction.called() for p in computation.parameters]
    return float_types(shapes)
