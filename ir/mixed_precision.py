"""Mixed precision: ops whose operands and result are floats of several types.

XLA's verifier does not look at the precision of floats: `f32[8] add(f32[8] a, bf16[8] b)` is an add. Back ends write
such programs where they fold conversions into ops. An op of mixed precision means: operands are converted to one type,
the op is done in it, its result converted to what is declared. That type is the widest one present with which the op's
own rules are content; for a reduction that is the type of its computation.

Ops that fit as they are (a dot that adds bf16 products in f32, convert) are not of mixed precision in this sense.
Assumption: control flow passes values as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .dynamic_sizes import is_called_static, result_shape
from .element_type import ElementType
from .instruction import Instruction
from .op import Compile, Kernel, ShapeError, Value
from .shape import Shape, tuple_shape


def fits(instruction: Instruction, element: ElementType | None = None) -> bool:
    """Whether the op's rules give the declared shape, with all floats of this type if one is given. Raises ShapeError
    where they give none.
    """
    declared = in_type(instruction.shape, element)
    operands = [in_type(o.shape, element) for o in instruction.operands]
    inferred = result_shape(instruction.op, operands, instruction.attributes, declared)
    return inferred.compatible(declared) or is_called_static(inferred, declared)


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
    return replace(shape, element=element) if shape.element.is_float else shape


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


def _floats(instruction: Instruction) -> Sequence[ElementType]:
    """The float types of operands, result and computations that the op applies, the widest first."""
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    shapes += [p.shape for computation in instruction.called() for p in computation.parameters]
    found = dict.fromkeys(leaf.element for shape in shapes for leaf in shape.leaves() if leaf.element.is_float)
    return sorted(found, key=lambda element: -element.bits)
