"""Transfers between the program and its environment: infeed, outfeed, send and recv with their dones.

They have shapes and attributes, are ordered by tokens, and cannot be evaluated. As in XLA, the context between a send
or recv and its done is (data, u32[], token).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..graph.attributes import Attributes
from ..graph.interfaces import FloatTypes, TextForm
from ..graph.op import AnyOp, Compile, Kernel, NotEvaluable, Op, OpCall, Role, ShapeError, register
from ..types.element_type import TOKEN, U32
from ..types.shape import Shape, array, tuple_shape
from .checks import text

if TYPE_CHECKING:
    from ..graph.instruction import Instruction

_TOKEN = array(TOKEN)


class _Transfer(Op[Any], FloatTypes):
    """Base of transfers, which are never removed, divided or evaluated."""

    side_effect = True
    keeps_types = True

    def kernel(self, call: OpCall[Any], compile: Compile) -> Kernel:
        raise NotEvaluable(f"{self.opcode} exchanges data with the program's environment, so it cannot be evaluated")


def _check_token(opcode: str, shape: Shape, what: str) -> None:
    if shape.element is not TOKEN:
        raise ShapeError(f"{opcode}: {what} must be a token, it is {text(shape)}")


def _declared_tuple(opcode: str, declared: Shape | None, form: str) -> tuple[Shape, ...]:
    if declared is None or not declared.is_tuple or len(declared.elements) != form.count(",") + 1:
        raise ShapeError(f"{opcode}: the result shape must be given as {form}")
    return declared.elements


@dataclass(frozen=True, slots=True)
class InfeedAttributes(Attributes):
    infeed_config: str = ""


@register
class Infeed(_Transfer, TextForm):
    """Token -> (data, token): takes data from the infeed queue of the host."""

    opcode = "infeed"
    attributes = InfeedAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: InfeedAttributes, declared: Shape | None) -> Shape:
        _check_token("infeed", operands[0], "the operand")
        data, token = _declared_tuple("infeed", declared, "(data, token[])")
        _check_token("infeed", token, "the last part of the result")
        return tuple_shape((data, token))


@dataclass(frozen=True, slots=True)
class OutfeedAttributes(Attributes):
    outfeed_shape: Shape | None = None
    outfeed_config: str = ""


@register
class Outfeed(_Transfer, TextForm):
    """Data, token -> token: puts data into the outfeed queue of the host."""

    opcode = "outfeed"
    attributes = OutfeedAttributes
    arity = (2, 2)
    result_hint = False
    lists_operands = True

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        """Returns a token, even where an old text declares the shape of the data or an empty tuple."""
        return _TOKEN if any(map(declared.compatible, (*operands[:1], tuple_shape(())))) else declared

    def infer_shape(self, operands: Sequence[Shape], attributes: OutfeedAttributes, declared: Shape | None) -> Shape:
        data, token = operands
        _check_token("outfeed", token, "operand 1")
        if attributes.outfeed_shape is not None and not attributes.outfeed_shape.compatible(data):
            raise ShapeError(f"outfeed: outfeed_shape is {text(attributes.outfeed_shape)}, the data is {text(data)}")
        return _TOKEN


@dataclass(frozen=True, slots=True)
class ChannelAttributes(Attributes):
    """`channel_id` pairs a send with its recv. A host transfer goes to or comes from the host."""

    channel_id: int | None = None
    is_host_transfer: bool = False


@register
class Send(_Transfer):
    """Data, token -> the context of a started transfer."""

    opcode = "send"
    attributes = ChannelAttributes
    arity = (2, 2)

    def infer_shape(self, operands: Sequence[Shape], attributes: ChannelAttributes, declared: Shape | None) -> Shape:
        _check_token("send", operands[1], "operand 1")
        return tuple_shape((operands[0], array(U32), _TOKEN))


@register
class Recv(_Transfer, TextForm):
    """Token -> the context of a started transfer."""

    opcode = "recv"
    attributes = ChannelAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ChannelAttributes, declared: Shape | None) -> Shape:
        _check_token("recv", operands[0], "the operand")
        data, _, token = _declared_tuple("recv", declared, "(data, u32[], token[])")
        _check_token("recv", token, "the last part of the result")
        return tuple_shape((data, array(U32), _TOKEN))


def is_send(op: AnyOp) -> bool:
    """Whether the uses of an op are sends."""
    return isinstance(op, Send)


def sent_bytes(instruction: Instruction) -> int | None:
    """Returns the bytes that a send takes from a device; None for other instructions."""
    return instruction.operands[0].shape.byte_size if is_send(instruction.op) else None


class _Done(_Transfer):
    """Base of the ops that complete a transfer; the operand is its context."""

    role = Role.DONE

    def data_shape(self, context: Shape) -> Shape:
        """Returns the shape of the transferred data. Raises ShapeError if the operand is not a context."""
        parts = context.elements
        if len(parts) != 3 or not parts[1].compatible(array(U32)) or not parts[2].compatible(_TOKEN):
            raise ShapeError(f"{self.opcode}: the operand must be (data, u32[], token[]), it is {text(context)}")
        return parts[0]


@register
class SendDone(_Done):
    """Completes a send: context -> token."""

    opcode = "send-done"
    attributes = ChannelAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ChannelAttributes, declared: Shape | None) -> Shape:
        self.data_shape(operands[0])
        return _TOKEN


@register
class RecvDone(_Done):
    """Completes a recv: context -> (data, token)."""

    opcode = "recv-done"
    attributes = ChannelAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: ChannelAttributes, declared: Shape | None) -> Shape:
        return tuple_shape((self.data_shape(operands[0]), _TOKEN))
