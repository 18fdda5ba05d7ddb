"""Replaces asynchronous starts and dones by the ops that they wrap.

Before: `s = ((f32[8]), f32[8]) negate-start(x)`, `d = f32[8] negate-done(s)`. After: `d = f32[8] negate(x)`.

A program that is still to be partitioned has no final schedule. The op takes the place of its first done; the scheduler
of the partitioned program starts it early again. Further dones are copies of it. A start with other uses (its parts are
read, or it is the result) becomes a tuple of these parts, after its op.

XLA wraps groups of transfers in one `async-start`, whose done awaits them all, so that no send-done or recv-done is
written. Without the start they would be in flight for ever, so these are written then:

    before:  w { s = (f32[], u32[], token[]) send(x, t)  ROOT r = ((f32[], u32[], token[])) tuple(s) }
    after:   w { s = ..  d = token[] send-done(s)  c = (f32[], u32[], token[]) tuple(x, .., d)  ROOT r = .. tuple(c) }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...ir.brief import brief
from ...ir.diagnostics import fail
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.starts import is_start, run_by, starts
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.ops.transfers import Recv, Send
from ...ir.tools.in_flight import transfer_problems
from ...ir.types.element_type import TOKEN
from ...ir.types.literal import scalar
from ...ir.types.shape import Shape
from ..base import Pass, PassContext

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


@dataclass(frozen=True)
class Synchronous(Pass):
    """Replaces starts and their dones by the ops that they wrap. Raises CompileError for transfers without a done."""

    name: ClassVar[str] = "synchronous"

    def is_idle(self, module: Module) -> bool:
        return not any(computation.having(is_start) for computation in module) and not transfer_problems(module)

    def run(self, module: Module, context: PassContext) -> bool:
        changed = sum(_computation(c) for c in module.computations) > 0
        context.diagnostics.found += transfer_problems(module)
        context.diagnostics.raise_errors()
        return changed


@brief
@dataclass(frozen=True)
class _Work:
    """A start with its updates and dones, in program order; `is_used` if its value has other uses."""

    start: Instruction
    updates: list[Instruction]
    dones: list[Instruction]
    is_used: bool


def _work(start: Instruction, places: dict[Instruction, int]) -> _Work:
    begun, dones, others = [start], list[Instruction](), False
    for value in begun:
        for user in value.users:
            if user.op.role is Role.UPDATE:
                begun.append(user)
            elif user.op.role is Role.DONE:
                dones.append(user)
            else:
                others = True
    assert start.parent is not None
    return _Work(start, begun[1:], sorted(dones, key=places.__getitem__), others or start.parent.root in begun)


def _computation(computation: Computation) -> int:
    begun = computation.having(is_start)
    if not begun:
        return 0
    places = {instruction: place for place, instruction in enumerate(computation)}
    works = [_work(i, places) for i in begun]
    gone = {i for work in works for i in (work.start, *work.updates, *work.dones)}
    made: dict[Instruction, Instruction] = {}
    for work in works:
        if not work.is_used:
            for called in work.start.called():
                await_transfers(called, work.dones)
        made |= _replace(computation, work)
    for instruction in computation:
        if gone.intersection(instruction.control_predecessors):
            # Control dependencies on a start are dropped: its work now begins later.
            kept = tuple(p for p in instruction.control_predecessors if p not in gone)
            instruction.control_predecessors = kept
    computation.remove_all(gone)
    for old, new in made.items():
        computation.rename(new, old.name)
    return len(works)


def _replace(computation: Computation, work: _Work) -> dict[Instruction, Instruction]:
    """Replaces a start and its dones by a synchronous op. Maps each to the value that takes over its uses."""
    start, dones = work.start, work.dones
    place = start if work.is_used or not dones else dones[0]
    with computation.at(before=place):
        result = value = _op(computation, work)
        if work.is_used:
            value = _parts(computation, start, result)
            value.sharding, value.shardy = start.sharding, start.shardy
    made = {place: value}
    if place is not start:
        result.sharding, result.shardy = place.sharding, place.shardy
        result.frontend_attributes = {**start.frontend_attributes, **place.frontend_attributes}
    for done in dones:
        if done is not place:
            with computation.at(before=done):
                copy = computation.add("copy", (result,), shape=done.shape, like=done)
            copy.sharding, copy.shardy, copy.frontend_attributes = done.sharding, done.shardy, done.frontend_attributes
            made[done] = copy
    for old in (start, *work.updates, *dones):
        computation.replace_all_uses(old, made.get(old, made.get(start, result)))
    return made


def _op(computation: Computation, work: _Work) -> Instruction:
    """Builds the wrapped op, with the control dependencies of its start and, in place of a done, of that one."""
    start, dones = work.start, work.dones
    op, attributes = run_by(start)
    shape = dones[0].shape if dones else starts(start).form_of(start.shape).result_of(start.shape)
    result = computation.add(op, start.operands, attributes, shape, like=start)
    result.backend_config, result.frontend_attributes = start.backend_config, start.frontend_attributes
    waits = [start] if work.is_used else [start, *work.updates, *dones[:1]]
    before = dict.fromkeys(p for i in waits for p in i.control_predecessors if p not in waits)
    result.control_predecessors = tuple(before)
    return result


def _parts(computation: Computation, start: Instruction, result: Instruction) -> Instruction:
    """Builds the value of a start from its operands, the result and contexts."""
    op = starts(start)

    def add(opcode: str, operands: Sequence[Instruction], **attributes: Any) -> Instruction:
        return computation.build(opcode, *operands, like=start, **attributes)

    def blank(shape: Shape) -> Instruction:
        if shape.is_tuple:
            return add("tuple", [blank(element) for element in shape.elements])
        if shape.element is TOKEN:
            return add("after-all", ())
        if shape.element.numpy is None or shape.is_dynamic:
            fail(f"{start.opcode} {start.name} has uses besides its updates and dones, but no value can stand for "
                 f"its context {shape.without_layout()}", start.location)
        zero = add("constant", (), literal=scalar(0, shape.element.numpy))
        return add("broadcast", (zero,), shape=shape.without_layout(), dimensions=()) if shape.rank else zero

    contexts = [blank(shape) for shape in op.form_of(start.shape).contexts_of(start.shape)]

    def join(parts: tuple[Instruction, ...]) -> Instruction:
        return add("tuple", parts)

    return op.arrange(start.call, start.operands, result, contexts, join)
