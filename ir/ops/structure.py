"""Structural ops: parameters, constants, tuples, barriers, tokens and device numbers.

They compute nothing. Tuples are data flow: their rules map leaves one to one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.sharding_rule import RuleBuilder, ShardingRule
from ..graph.attributes import INLINE, Attributes
from ..graph.attributes import ParameterAttributes as ParameterAttributes
from ..graph.interfaces import Call, DeviceNumber, FloatTypes, Memory, Movement, PassesOn, Ranges, TextForm
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, Role, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor
from ..types.element_type import TOKEN, U32
from ..types.literal import Array, Literal
from ..types.shape import Shape, array, tuple_shape
from .checks import text
from .computations import always

if TYPE_CHECKING:
    from ..graph.instruction import Instruction


def leaves_of(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Returns the leaves of all shapes, in order."""
    return tuple(leaf for shape in shapes for leaf in shape.leaves())


def leaf_rule(operands: Sequence[Shape], results: Sequence[Shape], first: int = 0) -> ShardingRule:
    """Returns the rule by which result leaf i is operand leaf `first + i`; other operand leaves are unconstrained."""
    b = RuleBuilder()
    passed = [b.dims(leaf) for leaf in results]
    chosen = range(first, first + len(results))
    dims = [passed[n - first] if n in chosen else b.dims(leaf) for n, leaf in enumerate(operands)]
    return b.rule(dims, passed)


class Forwards(Movement):
    """An op that returns the leaves of its operands, by default those of its only array or tuple."""

    forwards_leaves = True

    def sharding_rule(self, call: Call) -> ShardingRule:
        """Returns the rule by which each leaf is that of the operands."""
        return leaf_rule(leaves_of(call.operands), tuple(call.shape.leaves()))

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        """Returns the first operand."""
        return unchanged


@register
class Parameter(Op[ParameterAttributes], TextForm):
    """Returns an argument of the computation."""

    opcode = "parameter"
    role = Role.PARAMETER
    attributes = ParameterAttributes
    arity = (0, 0)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ParameterAttributes, declared: Shape | None
    ) -> Shape:
        if attributes.number < 0:
            raise ShapeError(f"parameter: number {attributes.number} is negative")
        if declared is None:
            raise ShapeError(f"parameter {attributes.number} needs a declared shape")
        return declared

    def sharding_rule(self, call: OpCall[ParameterAttributes]) -> ShardingRule:
        return _free_rule(call.shape)


def constant_array(instruction: Instruction) -> Array | None:
    """Returns the numbers of a constant; None for a tuple, for omitted numbers, and for other ops."""
    attributes = instruction.attributes
    return attributes.literal.array if isinstance(attributes, ConstantAttributes) else None


def moved_constant(value: Instruction) -> Array | None:
    """Returns the numbers of the constant from which ops on one operand take all elements of a value, perhaps in other
    places and several times; None if there is none.
    """
    while len(value.operands) == 1 and value.op.algebra is Algebra.MOVE and value.op.interface(Movement):
        (value,) = value.operands
    return constant_array(value)


@dataclass(frozen=True, slots=True)
class ConstantAttributes(Attributes):
    literal: Literal = field(metadata=INLINE)


@register
class Constant(Op[ConstantAttributes], TextForm, Ranges):
    """Returns a literal value. Every device can create any part of it, so all dimensions may be sharded."""

    opcode = "constant"
    algebra = Algebra.MADE
    role = Role.CONSTANT
    result_hint = False
    attributes = ConstantAttributes
    arity = (0, 0)

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        return _full_shape(declared)

    def infer_shape(self, operands: Sequence[Shape], attributes: ConstantAttributes, declared: Shape | None) -> Shape:
        shape = attributes.literal.shape
        if declared is not None and not shape.compatible(declared):
            raise ShapeError(f"constant: the literal is {text(shape)}, the declared shape is {text(declared)}")
        return declared if declared is not None else shape

    def sharding_rule(self, call: OpCall[ConstantAttributes]) -> ShardingRule:
        return _free_rule(call.shape)

    def facts(self, call: OpCall[ConstantAttributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return [_literal_fact(part) for part in call.attributes.literal.leaves()]

    def kernel(self, call: OpCall[ConstantAttributes], compile: Compile) -> Kernel:
        if not call.attributes.literal.is_known:
            raise NotEvaluable("the values of this constant were omitted when the program was printed ({...})")
        return always(call.attributes.literal.value)


@lru_cache(maxsize=65536)
def _full_shape(shape: Shape) -> Shape:
    """Returns the static shape of a literal, which has all elements even if declared dynamic, and is not a buffer."""
    if shape.is_tuple:
        return tuple_shape(tuple(map(_full_shape, shape.elements)))
    return replace(shape, dynamic=(), is_buffer=False)


def _literal_fact(literal: Literal) -> Fact:
    """Returns the range of the numbers of an array literal."""
    element = literal.shape.element
    if not literal.is_known or not (element.is_integer or element.is_float) or not literal.shape.num_elements:
        return Fact()
    with np.errstate(invalid="ignore"):  # ml_dtypes compares NaN so
        least, greatest = float(np.min(literal.value)), float(np.max(literal.value))
    return Fact() if math.isnan(least) or math.isnan(greatest) else Fact(Range.closed(least, greatest))


def _free_rule(shape: Shape) -> ShardingRule:
    """Returns the rule of an op without operands, in which every dimension of every leaf can be sharded."""
    b = RuleBuilder()
    return b.rule([], [b.dims(leaf) for leaf in shape.leaves()])


@register
class Tuple(Forwards, Op[Attributes], PassesOn, Memory, FloatTypes):
    """Returns its operands as one tuple."""

    opcode = "tuple"
    role = Role.TUPLE
    keeps_types = True
    shares_memory = True
    arity = (0, None)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        return tuple_shape(tuple(operands))

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        return lambda *values: values


@dataclass(frozen=True, slots=True)
class GetTupleElementAttributes(Attributes):
    index: int


@register
class GetTupleElement(Op[GetTupleElementAttributes], PassesOn, FloatTypes, Ranges):
    """Returns one element of a tuple."""

    opcode = "get-tuple-element"
    role = Role.ELEMENT
    keeps_types = True
    knows_columns = True
    attributes = GetTupleElementAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: GetTupleElementAttributes, declared: Shape | None
    ) -> Shape:
        (operand,) = operands
        if not operand.is_tuple:
            raise ShapeError(f"get-tuple-element: the operand must be a tuple, it is {text(operand)}")
        if not 0 <= attributes.index < len(operand.elements):
            size = len(operand.elements)
            raise ShapeError(f"get-tuple-element: index {attributes.index} is out of range for {size} elements")
        return operand.elements[attributes.index]

    def sharding_rule(self, call: OpCall[GetTupleElementAttributes]) -> ShardingRule:
        first, _ = call.operands[0].leaf_range(call.attributes.index)
        return leaf_rule(leaves_of(call.operands), tuple(call.shape.leaves()), first)

    def facts(self, call: OpCall[GetTupleElementAttributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        first, last = call.operands[0].leaf_range(call.attributes.index)
        return list(operands[first:last])

    def demands(
        self,
        call: OpCall[GetTupleElementAttributes],
        operands: Sequence[Fact],
        results: Sequence[Demand],
        visitor: Visitor,
    ) -> list[Demand]:
        first, last = call.operands[0].leaf_range(call.attributes.index)
        return [None] * first + list(results) + [None] * (len(operands) - last)

    def kernel(self, call: OpCall[GetTupleElementAttributes], compile: Compile) -> Kernel:
        return operator.itemgetter(call.attributes.index)


def element_index(instruction: Instruction) -> int | None:
    """Returns the index of the element that an instruction takes out of a tuple; None for other ops."""
    attributes = instruction.attributes
    return attributes.index if isinstance(attributes, GetTupleElementAttributes) else None


@register
class OptimizationBarrier(Forwards, Op[Attributes], PassesOn, Memory, FloatTypes):
    """Returns its operand. No instruction may be moved across it."""

    opcode = "opt-barrier"
    keeps_types = True
    shares_memory = True


@register
class AfterAll(Op[Attributes]):
    """Returns a token that is available once all operands are: tokens, or values of any other type."""

    opcode = "after-all"
    algebra = Algebra.MOVE
    arity = (0, None)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        return array(TOKEN)

    def sharding_rule(self, call: OpCall[Attributes]) -> ShardingRule:
        """Returns a rule without common factors: each device waits for its own tiles."""
        b = RuleBuilder()
        return b.rule([b.dims(leaf) for leaf in leaves_of(call.operands)], [[]])

    def kernel(self, call: OpCall[Attributes], compile: Compile) -> Kernel:
        return lambda *tokens: None


@register
class AddDependency(Forwards, Op[Attributes], PassesOn, Memory, FloatTypes):
    """Returns its first operand once its second operand, a token, is available."""

    opcode = "add-dependency"
    keeps_types = True
    shares_memory = True
    arity = (2, 2)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        if operands[1].element is not TOKEN:
            raise ShapeError(f"add-dependency: operand 1 must be a token, it is {text(operands[1])}")
        return operands[0]


def unchanged(value: Any, *others: Any) -> Any:
    """Returns its first operand; further operands only need to be computed. The kernel of identities."""
    return value


class _DeviceNumber(Op[Attributes], DeviceNumber):
    """Returns the number of the executing device."""

    arity = (0, 0)

    def infer_shape(self, operands: Sequence[Shape], attributes: Attributes, declared: Shape | None) -> Shape:
        return array(U32)


@register
class PartitionId(_DeviceNumber):
    """Returns the number of the partition that runs the program as u32[]."""

    opcode = "partition-id"

    def number(self, replica: int, partition: int) -> int:
        return partition


@register
class ReplicaId(_DeviceNumber):
    """Returns the number of the replica that runs the program as u32[]."""

    opcode = "replica-id"

    def number(self, replica: int, partition: int) -> int:
        return replica
