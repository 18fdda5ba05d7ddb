"""Starts of asynchronous ops: what they begin, and how their values are laid out.

There are three syntaxes (`async_ops.py`), with different shapes of a start's value. A `StartLayout` describes the
positions of operands and result in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..diagnostics import InternalError
from ..graph.attributes import Attributes, attribute_fields
from ..graph.op import AnyOp, OpCall
from ..types.shape import Shape

if TYPE_CHECKING:
    from ..graph.instruction import Instruction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartLayout:
    """The layout of a start's value. `result` is the index of the result; None if the value is the result itself.

    The other one of the first two elements holds the operands: a single one directly if `bare`, else a tuple. Further
    elements (contexts) belong to the back end and are zero at run time.
    """

    words: str
    result: int | None = 1
    bare: bool = False

    def fits(self, shape: Shape) -> bool:
        """Whether a shape has an element for the result."""
        return self.result is None or (shape.is_tuple and len(shape.elements) >= 2)

    def result_of(self, shape: Shape) -> Shape:
        """Returns the result's part of a start's shape."""
        return shape if self.result is None else shape.elements[self.result]

    def contexts_of(self, shape: Shape) -> tuple[Shape, ...]:
        """Returns the shapes after operands and result."""
        return () if self.result is None else shape.elements[2:]

    def arrange(self, operands: Sequence[T], result: T, contexts: Sequence[T], join: Callable[[tuple[T, ...]], T]) -> T:
        """Builds the value of a start from its parts: shapes, values or buffers. `join` makes tuples of them."""
        if self.result is None:
            return result
        given = operands[0] if self.bare and len(operands) == 1 else join(tuple(operands))
        return join((result, given, *contexts) if self.result == 0 else (given, result, *contexts))


WRAPPED = StartLayout("((operands), result, contexts..)")
GATHERED = StartLayout("(operand, result, contexts..)", bare=True)
COPIED = StartLayout("(result, operand, contexts..)", 0, True)
PLAIN = StartLayout("the result", None)


def form_of(own: StartLayout, shape: Shape | None) -> StartLayout:
    """Returns the form of a start's shape. XLA prints wrapped collectives as built-in starts with the wrapped form."""
    if own is WRAPPED or shape is None or not (shape.is_tuple and len(shape.elements) >= 2):
        return own
    first, second = shape.elements[:2]
    if own is GATHERED and second.is_tuple and len(first.elements) == len(second.elements):
        return own  # both layouts agree, except for an in-place permute of several buffers
    return WRAPPED if first.is_tuple and not first.compatible(second) else own


class Starts:
    """An op that begins another one, whose result its done returns."""

    wrapped: ClassVar[AnyOp]
    form: ClassVar[StartLayout] = WRAPPED

    def unwrap(self, attributes: Any) -> tuple[AnyOp, Attributes]:
        """Returns the started op and its attributes."""
        own = self.wrapped.attributes
        return self.wrapped, own(**{name: getattr(attributes, name) for name in attribute_fields(own)})

    def form_of(self, shape: Shape | None) -> StartLayout:
        """Returns the layout of a start with this shape."""
        return form_of(self.form, shape)

    def arrange(
        self, call: OpCall[Any], operands: Sequence[T], result: T, contexts: Sequence[T], join: Callable[..., T]
    ) -> T:
        """Builds the value of this start from its parts. A permute that fills slices contains only its input."""
        form = self.form_of(call.shape)
        in_place = form is GATHERED and getattr(call.attributes, "slice_sizes", ())
        return form.arrange(operands[:1] if in_place else operands, result, contexts, join)


@cache
def is_start(op: AnyOp) -> bool:
    """Whether an op begins another one."""
    return op.interface(Starts) is not None


def starts(start: Instruction) -> Starts:
    """Returns the op of a start as such. Raises InternalError for other instructions."""
    op = start.op.interface(Starts)
    if op is None:
        raise InternalError(f"{start.opcode} {start.name} starts nothing")
    return op


def run_by(instruction: Instruction) -> tuple[AnyOp, Attributes]:
    """Returns the op that an instruction runs, and its attributes: those that a start begins, else its own."""
    op, attributes = instruction.op, instruction.attributes
    start = op.interface(Starts)
    return (op, attributes) if start is None else start.unwrap(attributes)
