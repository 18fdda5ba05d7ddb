"""Interfaces of ops: what only some ops can say, each in a small class that such an op lists among its bases.

`op.interface(Movement)` gives the op as a `Movement`, or None. The functions at the end ask any op, and answer for
those without the interface too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..factors.sharding_rule import ShardingRule
from ..types.products import Products
from ..types.shape import Shape
from .op import AnyOp, OpCall, Use
from .source import Pooled, Source, Updates, Windows
from .value_range import Demand, Fact, Visitor, joined

if TYPE_CHECKING:
    from .instruction import Instruction

Call = OpCall[Any]


class TextForm:
    """An op whose text does not have the shape of its result where others have it.

    `result_hint`: the text must declare the result shape, because it cannot be inferred. `lists_operands`: its sharding
    may have one entry per leaf of the operands.
    """

    result_hint: ClassVar[bool] = True
    lists_operands: ClassVar[bool] = False

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        """Returns the actual result shape for a declared one, which XLA, or an older version, does not always trust."""
        return declared


class Placed:
    """An op that is not valid at all positions of a program."""

    def check_use(self, use: Use) -> None:
        """Raises ShapeError if the op is invalid at its position, whatever the shapes: a done needs its start."""


class DeviceNumber:
    """An op whose value is the number of the executing device, which the runtime supplies."""

    def number(self, replica: int, partition: int) -> int:
        """Returns the value on the device of this replica and partition."""
        raise NotImplementedError


class Draws:
    """An op that draws from the device's hidden `RandomState`, which the runtime passes to the kernel first."""


class Memory:
    """An op whose result lies in the memory of its operands.

    `is_view`: the result reinterprets the operand's memory, so the op costs no time. `shares_memory`: leaf i of the
    result lies in the memory of leaf i of the operands.
    """

    is_view: ClassVar[bool] = False
    shares_memory: ClassVar[bool] = False

    def overwritten(self, call: Call) -> Container[int]:
        """Returns the operands that the result takes over but for some elements. A compiler writes only these."""
        return ()


class PassesOn:
    """An op that gives on its operands or parts of them without reading them: its kernel takes and returns anything in
    the place of arrays, such as buffers.
    """


class Movement:
    """An op that takes elements of its result from its operands as they are, or converted.

    `element_sources`: the only operands that supply elements of the result. `forwards_leaves`: leaf i of the operands
    supplies the elements of leaf i of the result. Facts and demands follow by default.
    """

    element_sources: ClassVar[Container[int]] = ()
    forwards_leaves: ClassVar[bool] = False

    def sources(self, call: Call) -> tuple[Source, ...] | None:
        """Returns where the elements of the result come from, for an op that only moves them in a fixed way."""
        return None

    def windows(self, call: Call) -> Windows | None:
        """Returns the windows of operand 0 that the result consists of, for an op that moves elements from computed
        places.
        """
        return None

    def updates(self, call: Call) -> Updates | None:
        """Returns how one operand is put into another at computed places, for an op that does this."""
        return None


class Pools:
    """An op that may combine a few elements of operand 0 for each of its result, as a pooling layer does."""

    def pooled(self, call: Call) -> Pooled | None:
        """Returns which elements it combines; None if they are many or the computation is not known."""
        raise NotImplementedError


class Multiplies:
    """An op whose arithmetic may take longer than its memory traffic, though its sharding rule does not say so, as that
    of a contraction does.
    """

    def products(self, call: Call) -> Products | None:
        """Returns the arithmetic of one execution; None if it is negligible or not known."""
        raise NotImplementedError


class Applies:
    """An op that applies a called computation to elements. `applied` is the attribute that holds it."""

    applied: ClassVar[str] = "to_apply"

    def folded(self, call: Call) -> Container[int]:
        """Returns the operands whose elements it combines by the computation, if it combines any (`Algebra.FOLD`)."""
        return range(len(call.operands))


class Exchange:
    """A collective. `divides`: one with several operands does what one per operand does. `joins`: result i is made of
    operand i of all members of a group, reduced or gathered. `gives_all`: all members get the same.
    """

    divides: ClassVar[bool] = True
    joins: ClassVar[bool] = False
    gives_all: ClassVar[bool] = False


class Additive:
    """An op that takes some operands in parts. `additive_groups` is the default result of `additive`."""

    additive_groups: ClassVar[tuple[frozenset[int], ...]] = ()

    def additive(self, call: Call) -> tuple[frozenset[int], ...]:
        """Returns the groups of operands in which the op is additive.

        If the operands of a group are sums of the same number of terms, the result is the sum of the results of the
        terms, with the other operands unchanged. Applies to numbers only.
        """
        return self.additive_groups

    def started(self, call: Call) -> frozenset[int]:
        """Returns the operands to which the op adds sums over its reduction factors. Devices that divide these factors
        may each begin with a part of such an operand.
        """
        return frozenset()


class Stackable:
    """An op of which one use can do the work of several."""

    def stacked(self, call: Call, count: int) -> Call:
        """Returns one use of the op in place of `count` independent ones like `call`: operands and results have a
        dimension of this size in front.
        """
        raise NotImplementedError


class Alternatives:
    """An op that can be divided in several ways."""

    def alternative_rules(self, call: Call) -> tuple[ShardingRule, ...]:
        """Returns further rules by which the partitioner may divide the op, where `sharding_rule` costs communication.
        Propagation ignores them.
        """
        raise NotImplementedError


class MapsScalars:
    """An op that is not element-wise, but whose uses on scalars may apply to arrays element by element."""

    def maps_scalars(self, call: Call) -> bool:
        """Whether the scalar kernel of this use also applies to arrays of any shape, element by element."""
        raise NotImplementedError


class FloatTypes:
    """An op that treats float types otherwise than as types in which it computes.

    `typed_by`: the operand that determines the result's float type where a text omits the result shape and float
    types are mixed; None: the type of highest precision. `converts_result`: the declared result may have any element
    type; the computed values are converted to it. `keeps_types`: forwards values or bits unchanged, so
    precision is never mixed.
    """

    typed_by: ClassVar[int | None] = None
    converts_result: ClassVar[bool] = False
    keeps_types: ClassVar[bool] = False

    def reads_format(self, call: Call) -> bool:
        """Whether the result depends on the float format, as in bit casts and random draws: a wider type that holds the
        same numbers would give another result.
        """
        return False


class Dynamic:
    """An op for which `dynamic_sizes` does not infer dynamic dimensions, or not from all operands.

    `infers_dynamic`: infer_shape and kernel handle them. `dynamic_operands`: those whose dynamic dimensions are dynamic
    in the result too; None: all of them. `refuses_values`: the kernel may reject operand values, so no device may run
    the op on meaningless ones.
    """

    infers_dynamic: ClassVar[bool] = True
    dynamic_operands: ClassVar[frozenset[int] | None] = None
    refuses_values: ClassVar[bool] = False


class Ranges:
    """An op that knows ranges of its values. `knows_columns`: `demands` accepts demands per position of a dimension."""

    knows_columns: ClassVar[bool] = False

    def facts(self: Any, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        """Returns one fact per leaf of the result, given those of the operands: a range that holds for all inputs, or
        `Fact()` if nothing is known.
        """
        return moved_facts(self, call, operands)

    def demands(
        self: Any, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Returns one demand per leaf of the operands, given the demands on the result.

        A demand is the range in which elements should lie for the result to be meaningful and to satisfy its own
        demand: indices within bounds, logarithms of positive numbers. Random inputs are drawn accordingly. Demands are
        not enforced.
        """
        return moved_demands(self, operands, results)


_NOWHERE, _OWN, _COMPUTES = Movement(), Memory(), FloatTypes()


def has_result_hint(op: AnyOp) -> bool:
    """Whether a text must declare the shape of the op's result."""
    form = op.interface(TextForm)
    return form is not None and form.result_hint


def infers_dynamic(op: AnyOp) -> bool:
    """Whether the op's own inference and kernel handle dynamic dimensions."""
    own = op.interface(Dynamic)
    return own is not None and own.infers_dynamic


@cache
def movement(op: AnyOp) -> Movement:
    """Returns where the elements of the op's results come from: by default it does not say."""
    return op.interface(Movement) or _NOWHERE


def sources_of(instruction: Instruction) -> tuple[Source, ...] | None:
    """Returns where the elements of a result come from; None for an op that does not only move them in a fixed way."""
    moves = instruction.op.interface(Movement)
    return None if moves is None else moves.sources(instruction.call)


def windows_of(instruction: Instruction) -> Windows | None:
    """Returns the windows of operand 0 that a result consists of; None for other ops."""
    moves = instruction.op.interface(Movement)
    return None if moves is None else moves.windows(instruction.call)


def updates_of(instruction: Instruction) -> Updates | None:
    """Returns how an instruction puts one operand into another; None for other ops."""
    moves = instruction.op.interface(Movement)
    return None if moves is None else moves.updates(instruction.call)


@cache
def memory(op: AnyOp) -> Memory:
    """Returns in whose memory the op's results lie: by default in their own."""
    return op.interface(Memory) or _OWN


@cache
def floats_of(op: AnyOp) -> FloatTypes:
    """Returns how the op treats float types: by default it computes in one of them."""
    return op.interface(FloatTypes) or _COMPUTES


def pooled_of(instruction: Instruction) -> Pooled | None:
    """Returns which elements an instruction combines for each of its result; None for other ops."""
    own = instruction.op.interface(Pools)
    return None if own is None else own.pooled(instruction.call)


def products_of(instruction: Instruction) -> Products | None:
    """Returns the arithmetic of an instruction that is no contraction; None if it is negligible or not known."""
    own = instruction.op.interface(Multiplies)
    return None if own is None else own.products(instruction.call)


def applied(instruction: Instruction) -> Any:
    """Returns the computation that an instruction applies to elements; None if there is none."""
    own = instruction.op.interface(Applies)
    return None if own is None else getattr(instruction.attributes, own.applied)


def additive(instruction: Instruction) -> tuple[frozenset[int], ...]:
    """Returns the groups of operands in which an instruction is additive."""
    fixed = _additive_groups(instruction.op)
    op = instruction.op.interface(Additive) if fixed is None else None
    return fixed or () if op is None else op.additive(instruction.call)


def started(op: AnyOp, call: Call) -> frozenset[int]:
    """Returns the operands to which an op adds sums over its reduction factors."""
    own = op.interface(Additive)
    return frozenset() if own is None else own.started(call)


@cache
def may_start(op: AnyOp) -> bool:
    """Whether some uses of an op add sums over its reduction factors to operands."""
    own = op.interface(Additive)
    return own is not None and type(own).started is not Additive.started


def additive_group(user: Instruction, value: Instruction) -> frozenset[int]:
    """Returns the operands of `user` that must be partial together with `value`; empty if it is not additive in it."""
    if not value.shape.is_array or not value.shape.element.is_number:
        return frozenset()
    groups = additive(user)
    positions = {n for n, operand in enumerate(user.operands) if operand is value} if groups else set[int]()
    return next((group for group in groups if positions <= group), frozenset[int]())


@cache
def _additive_groups(op: AnyOp) -> tuple[frozenset[int], ...] | None:
    """Returns the groups of operands in which all uses of an op are additive; None if they depend on the use."""
    own = op.interface(Additive)
    if own is None:
        return ()
    return own.additive_groups if type(own).additive is Additive.additive else None


def takes_arrays(op: AnyOp, call: Call) -> bool:
    """Whether the scalar kernel of this use also applies to arrays of any shape, element by element."""
    own = op.interface(MapsScalars)
    return op.is_elementwise if own is None else own.maps_scalars(call)


def moved_facts(op: AnyOp, call: Call, operands: Sequence[Fact]) -> list[Fact]:
    """Returns the facts that follow from where elements come from."""
    moves, count = movement(op), call.shape.num_leaves
    if moves.forwards_leaves:
        return list(operands[:count])
    sources = [fact for n, fact in enumerate(operands) if n in moves.element_sources]
    if not sources:
        return [Fact() for _ in range(count)]
    found = sources[0].range
    for fact in sources[1:]:
        found = found.hull(fact.range)
    return [sources[0].with_range(found) if op.is_elementwise and len(sources) == 1 else Fact(found)]


def moved_demands(op: AnyOp, operands: Sequence[Fact], results: Sequence[Demand]) -> list[Demand]:
    """Returns the demands that follow from where elements come from."""
    moves = movement(op)
    if moves.forwards_leaves:
        return [results[n] if n < len(results) else None for n in range(len(operands))]
    return [joined(results[0]) if n in moves.element_sources else None for n in range(len(operands))]


def facts(op: AnyOp, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
    """Returns the known facts of the results of a use of an op: see `Ranges.facts`."""
    own = op.interface(Ranges)
    return moved_facts(op, call, operands) if own is None else own.facts(call, operands, visitor)


def demands(
    op: AnyOp, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
) -> list[Demand]:
    """Returns the demands of a use of an op on its operands: see `Ranges.demands`. Columns are joined for ops that do
    not know them.
    """
    own = op.interface(Ranges)
    if not movement(op).forwards_leaves and (own is None or not own.knows_columns):
        results = [joined(r) for r in results]
    return moved_demands(op, operands, results) if own is None else own.demands(call, operands, results, visitor)
