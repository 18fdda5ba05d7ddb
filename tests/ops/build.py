"""Small helpers of the op tests: shapes from text, one use of an op, called computations, and running them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from hloom.ir.graph.attributes import NONE, Attributes, Callee
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.op import Kernel, OpCall, op_named
from hloom.ir.ops import structure
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.ir.types.shape import Shape, array


def shape(text: str) -> Shape:
    """`f32[2,3]` as a shape."""
    match = re.fullmatch(r"(\w+)\[([\d,]*)\]", text)
    assert match, text
    return array(ELEMENT_TYPES[match[1]], tuple(int(n) for n in match[2].split(",") if n))


def shapes(text: str) -> tuple[Shape, ...]:
    """Shapes, separated by spaces."""
    return tuple(map(shape, text.split()))


def use(
    opcode: str, operands: str | Sequence[Shape], declared: str | Shape | None = None, **attributes: Any
) -> OpCall[Any]:
    """One use of an op: its result shape is inferred. Raises ShapeError if it does not fit."""
    op = op_named(opcode)
    given = shapes(operands) if isinstance(operands, str) else tuple(operands)
    own = op.attributes(**attributes) if op.attributes is not Attributes else NONE
    result = op.infer_shape(given, own, shape(declared) if isinstance(declared, str) else declared)
    return OpCall(given, own, result)


def rule(opcode: str, call: OpCall[Any]) -> str:
    """The sharding rule of a use, as text."""
    return str(op_named(opcode).sharding_rule(call))


def function(name: str, parameters: str | Sequence[Shape], *steps: tuple[Any, ...]) -> Computation:
    """A computation. A step is an opcode and the numbers of its operands, parameters counting first; the last step is
    the root.
    """
    result = Computation(name)
    given = shapes(parameters) if isinstance(parameters, str) else parameters
    values = [result.add("parameter", (), structure.ParameterAttributes(n), s) for n, s in enumerate(given)]
    for opcode, *operands in steps:
        values.append(result.add(str(opcode), [values[int(n)] for n in operands]))
    result.root = values[-1]
    return result


def reducer(opcode: str, element: str = "f32") -> Computation:
    """`opcode` of two scalars."""
    return function(f"{opcode}_{element}", f"{element}[] {element}[]", (opcode, 0, 1))


@cache
def compile(computation: Callee) -> Kernel:
    """A computation as a function, instruction by instruction."""
    assert isinstance(computation, Computation)
    kernels = {i: i.op.kernel(i.call, compile) for i in computation if i.opcode != "parameter"}

    def run(*arguments: Any) -> Any:
        values = dict(zip(computation.parameters, arguments, strict=True))
        for instruction, kernel in kernels.items():
            values[instruction] = kernel(*(values[o] for o in instruction.operands))
        return values[computation.root]

    return run


def run(opcode: str, call: OpCall[Any], *operands: Any) -> Any:
    """The value of one use of an op."""
    with np.errstate(all="ignore"):
        return op_named(opcode).kernel(call, compile)(*map(np.asarray, operands))
