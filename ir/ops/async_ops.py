"""Asynchronous ops: a start launches another op, a done waits for it, with optional updates in between.

There are three syntaxes. `async-start(..), calls=%c` starts a computation. `negate-start(..)` starts one op with that
op's attributes. all-reduce, all-gather, collective-permute and copy have starts of their own, with different result
shapes. A `StartLayout` describes the positions of operands and result in a start's value; their shapes and values are
those of the wrapped op.

Assumption: a start's value is used only by its updates and its done, as XLA requires too.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ..factors.sharding_rule import ShardingRule
from ..graph.attributes import Attributes, attribute_fields, inline_field
from ..graph.dynamic_sizes import result_shape
from ..graph.interfaces import (
    Applies,
    Dynamic,
    FloatTypes,
    Memory,
    PassesOn,
    Placed,
    Ranges,
    TextForm,
    demands,
    floats_of,
    has_result_hint,
)
from ..graph.op import (
    OPS,
    AnyOp,
    Compile,
    Kernel,
    Op,
    OpCall,
    Role,
    ShapeError,
    Use,
    Value,
    op_named,
    register,
)
from ..graph.value_range import Demand, Fact, Visitor
from ..strings import BracedText
from ..types.shape import Shape, tuple_shape
from . import collectives as collectives  # registers the ops wrapped below
from . import conversion as conversion
from .checks import text
from .control import CallAttributes
from .starts import COPIED, GATHERED, PLAIN, WRAPPED, StartLayout, Starts, form_of
from .structure import Forwards, leaf_rule, leaves_of, unchanged

if TYPE_CHECKING:
    from ..graph.computation import Computation

T = TypeVar("T")
MAIN_THREAD = "main"


@dataclass(frozen=True, slots=True)
class AsyncStartAttributes(Attributes):
    async_execution_thread: str = ""
    calls: Computation = dataclasses.field(kw_only=True)
    output_to_operand_aliasing: BracedText | None = None


@dataclass(frozen=True, slots=True)
class AsyncLinkAttributes(Attributes):
    """Attributes of updates and dones, which older XLA repeats from the start."""

    async_execution_thread: str = ""
    calls: Computation | None = None


@dataclass(frozen=True, slots=True)
class CopyStartAttributes(Attributes):
    cross_program_prefetch_index: int | None = None


class AsyncStart(Op[Any], Starts, TextForm, FloatTypes, Dynamic, Ranges):
    """Starts an op, whose result the done returns."""

    result_hint = False
    knows_columns = True

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        """Returns only the result's shape if that is the form, even if an old text declares the operands too."""
        if self.form is PLAIN and len(declared.elements) >= 2 and operands:
            given = operands[0] if len(operands) == 1 else tuple_shape(tuple(operands))
            if all(part.compatible(given) for part in declared.elements[:2]):
                return declared.elements[1]
        return declared

    def infer_shape(self, operands: Sequence[Shape], attributes: Any, declared: Shape | None) -> Shape:
        form, (op, inner) = self.form_of(declared), self.unwrap(attributes)
        if declared is not None and not form.fits(declared):
            raise ShapeError(f"{self.opcode}: the result must be {form.words}, it is {text(declared)}")
        result = result_shape(op, operands, inner, None if declared is None else form.result_of(declared))
        contexts = () if declared is None else form.contexts_of(declared)
        call = OpCall(tuple(operands), attributes, result if declared is None else declared)
        return self.arrange(call, operands, result, contexts, tuple_shape)

    def has_side_effect(self, attributes: Any) -> bool:
        op, inner = self.unwrap(attributes)
        return op.has_side_effect(inner)

    def demands(
        self, call: OpCall[Any], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        form, (op, inner) = self.form_of(call.shape), self.unwrap(call.attributes)
        first, last = (0, len(results)) if form.result is None else call.shape.leaf_range(form.result)
        wrapped = dataclasses.replace(call, attributes=inner, shape=form.result_of(call.shape))
        return demands(op, wrapped, operands, results[first:last], visitor)

    def kernel(self, call: OpCall[Any], compile: Compile) -> Kernel:
        form, (op, inner) = self.form_of(call.shape), self.unwrap(call.attributes)
        started = op.kernel(dataclasses.replace(call, attributes=inner, shape=form.result_of(call.shape)), compile)
        contexts = [blank(shape) for shape in form.contexts_of(call.shape)]
        return lambda *values: self.arrange(call, values, started(*values), contexts, tuple)


def starts_computation(op: AnyOp) -> bool:
    """Whether an op starts a computation. No other start may call the same one."""
    return isinstance(op, AsyncStartComputation)


def blank(shape: Shape) -> Value:
    """Returns the value of a context: zeros."""
    if shape.is_tuple:
        return tuple(blank(e) for e in shape.elements)
    return np.zeros(shape.dims, shape.element.numpy) if shape.element.numpy is not None else None


@register
class AsyncStartComputation(AsyncStart):
    """Starts a computation, on another execution thread if it names one."""

    opcode = "async-start"
    attributes = AsyncStartAttributes
    arity = (0, None)
    is_control = True
    wrapped = OPS["call"]

    def unwrap(self, attributes: AsyncStartAttributes) -> tuple[AnyOp, Attributes]:
        return self.wrapped, CallAttributes(attributes.calls)

    def variant(self, op: AnyOp) -> AnyOp | None:
        """Returns the op `negate-start` for negate: it has the attributes of negate, and the thread."""
        return _start(op, _with_thread(op)) if _can_wrap(op) else None


class _Link(Op[Any], Placed, FloatTypes):
    """An update or a done, whose operand is a start or an update."""

    attributes = AsyncLinkAttributes
    keeps_types = True
    stem: ClassVar[str] = "async"
    form: ClassVar[StartLayout] = WRAPPED

    def check_use(self, use: Use) -> None:
        start = use.operands[0]
        stem = start.opcode.removesuffix("-start").removesuffix("-update")
        fits = stem == self.stem or "async" in (stem, self.stem)
        if not fits or not isinstance(start.op, AsyncStart | AsyncUpdate):
            raise ShapeError(f"{self.opcode}: the operand must be its {self.stem}-start, it is {start.opcode}")
        ours, theirs = use.called(), start.called()
        if self.stem == stem == "async" and ours and theirs and ours != theirs:
            raise ShapeError(f"{self.opcode} calls {ours[0].name}, but its start calls {theirs[0].name}")
        while isinstance(start.op, AsyncUpdate) and start.operands:
            start = start.operands[0]
        thread, named = execution_thread(start), execution_thread(use)
        if named and named != (thread or MAIN_THREAD):
            raise ShapeError(f"{self.opcode} names thread {named}, but its start {thread or MAIN_THREAD}")


def execution_thread(use: Use) -> str:
    """Returns the execution thread that an asynchronous op names; empty for none."""
    return getattr(use.call.attributes, "async_execution_thread", "")


class AsyncUpdate(Forwards, _Link, PassesOn, Memory):
    """Forwards the value of its start."""

    opcode = "async-update"
    role = Role.UPDATE
    shares_memory = True

    def variant(self, op: AnyOp) -> AnyOp | None:
        return _link(AsyncUpdate, op, AsyncLinkAttributes) if _can_wrap(op) else None


class AsyncDone(_Link, PassesOn, Ranges):
    """Waits for the op of its start and returns the op's result."""

    opcode = "async-done"
    role = Role.DONE
    knows_columns = True

    def infer_shape(self, operands: Sequence[Shape], attributes: Any, declared: Shape | None) -> Shape:
        form = form_of(self.form, operands[0])
        if not form.fits(operands[0]):
            raise ShapeError(f"{self.opcode}: the operand must be {form.words}, it is {text(operands[0])}")
        return form.result_of(operands[0])

    def sharding_rule(self, call: OpCall[Any]) -> ShardingRule:
        place = form_of(self.form, call.operands[0]).result
        first = 0 if place is None else call.operands[0].leaf_range(place)[0]
        return leaf_rule(leaves_of(call.operands), tuple(call.shape.leaves()), first)

    def demands(
        self, call: OpCall[Any], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        place = form_of(self.form, call.operands[0]).result
        first, last = (0, len(results)) if place is None else call.operands[0].leaf_range(place)
        return [None] * first + list(results) + [None] * (len(operands) - last)

    def kernel(self, call: OpCall[Any], compile: Compile) -> Kernel:
        place = form_of(self.form, call.operands[0]).result
        return unchanged if place is None else operator.itemgetter(place)

    def variant(self, op: AnyOp) -> AnyOp | None:
        return _link(AsyncDone, op, AsyncLinkAttributes) if _can_wrap(op) else None


register(AsyncUpdate)
register(AsyncDone)


def _start(op: AnyOp, attributes: type[Attributes], form: StartLayout = WRAPPED) -> AnyOp:
    names = {
        "__doc__": f"Begins {op.opcode}; {op.opcode}-done gives the result.",
        "opcode": op.opcode + "-start",
        "attributes": attributes,
        "arity": op.arity,
        "is_collective": op.is_collective,
        "is_control": op.is_control,
        "result_hint": has_result_hint(op),
        "keeps_types": floats_of(op).keeps_types,
        "wrapped": op,
        "form": form,
    }
    return type("Start", (AsyncStart, Applies) if op.interface(Applies) else (AsyncStart,), names)()


def _link(base: type[_Link], op: AnyOp, attributes: type[Attributes], form: StartLayout = WRAPPED) -> AnyOp:
    opcode = base.opcode.replace("async", op.opcode)
    names = {"__doc__": base.__doc__, "opcode": opcode, "stem": op.opcode, "attributes": attributes, "form": form}
    return type(base.__name__, (base,), names)()


def _can_wrap(op: AnyOp) -> bool:
    return inline_field(op.attributes) is None and not isinstance(op, AsyncStart | _Link)


def _with_thread(op: AnyOp) -> type[Attributes]:
    """Returns the class of the attributes of `negate-start` for negate: those of negate, and the thread."""
    return _extended(op, ("async_execution_thread", str, dataclasses.field(default="", kw_only=True)))


def _extended(op: AnyOp, *fields: Any) -> type[Attributes]:
    """Returns the class of the attributes of the start of an op: those of the op, the results that take the memory of
    operands, and further fields.
    """
    aliasing = ("output_to_operand_aliasing", BracedText | None, dataclasses.field(default=None, kw_only=True))

    def reduce(self: Attributes) -> tuple[Any, ...]:
        """Pickles the opcode and the values, because the class is not a module attribute."""
        values = {name: getattr(self, name) for name in attribute_fields(type(self))}
        return _from_values, (op.opcode + "-start", values)

    namespace = {"__module__": op.attributes.__module__, "__reduce__": reduce}
    return dataclasses.make_dataclass(
        "Async" + op.attributes.__name__, [*fields, aliasing], bases=(op.attributes,), namespace=namespace, frozen=True,
        slots=True,
    )  # fmt: skip


def _from_values(opcode: str, values: dict[str, Any]) -> Attributes:
    return op_named(opcode).attributes(**values)


for _opcode, _form in (("all-reduce", PLAIN), ("all-gather", GATHERED), ("collective-permute", GATHERED)):
    register(_start(OPS[_opcode], _extended(OPS[_opcode]), _form))
    register(_link(AsyncDone, OPS[_opcode], Attributes, _form))
register(_start(OPS["copy"], CopyStartAttributes, COPIED))
register(_link(AsyncDone, OPS["copy"], Attributes, COPIED))
