"""Completes sends and receives that an asynchronous computation begins, where its done is all that waits for them.

XLA wraps groups of transfers in one `async-start`, whose done awaits them all, so that no send-done or recv-done is
written. Without the start they would be in flight for ever.

    before:  w { s = (f32[], u32[], token[]) send(x, t)  ROOT r = ((f32[], u32[], token[])) tuple(s) }
    after:   w { s = ..  d = token[] send-done(s)  c = (f32[], u32[], token[]) tuple(x, .., d)  ROOT r = .. tuple(c) }
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.ops.transfers import Recv, Send

_DONES = {Send: "send-done", Recv: "recv-done"}


def await_transfers(computation: Computation, results: Sequence[Instruction]) -> None:
    """Completes the transfers whose contexts a computation returns, if of these only parts are read. `results` are the
    values of its calls.
    """
    root = computation.root
    if root.op.role is not Role.TUPLE:
        if type(root.op) in _DONES and all(map(_is_taken_apart, results)):
            computation.root = _completed(computation, root)
        return
    parts = list(root.operands)
    if any(type(part.op) in _DONES for part in parts) and all(map(_is_taken_apart, results)):
        elements = [user for result in results for user in result.users]
        kept = {e.attributes_as(GetTupleElementAttributes).index for e in elements if not _is_taken_apart(e)}
        for number, part in enumerate(parts):
            if type(part.op) in _DONES and number not in kept:
                parts[number] = _completed(computation, part)
        computation.root = computation.build("tuple", *parts, like=root)
        computation.remove(root)


def _is_taken_apart(value: Instruction) -> bool:
    """Whether elements of a tuple are read, but nothing else is done with it."""
    is_result = value.parent is not None and value is value.parent.root
    return not is_result and all(user.op.role is Role.ELEMENT for user in value.users)


def _completed(computation: Computation, transfer: Instruction) -> Instruction:
    """Awaits a transfer, and returns a context with the received value."""
    done = computation.add(_DONES[type(transfer.op)], (transfer,), transfer.attributes, like=transfer)
    done.frontend_attributes = transfer.frontend_attributes

    def part(value: Instruction, index: int) -> Instruction:
        return computation.build("get-tuple-element", value, index=index, like=transfer)

    number = part(transfer, 1)
    if isinstance(transfer.op, Send):
        return computation.build("tuple", transfer.operands[0], number, done, like=transfer)
    return computation.build("tuple", part(done, 0), number, part(done, 1), like=transfer)
