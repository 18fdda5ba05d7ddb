"""The state of a loop: when it can be edited, what trips leave as it is, and new elements for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Draws
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import GetTupleElementAttributes, element_index
from ...ir.tools.control_flow import is_control
from ...ir.types.shape import Shape, tuple_shape


def shared_computations(module: Module) -> set[Computation]:
    """Returns the computations that several instructions call, so that an edit for one would change the others."""
    calls: dict[Computation, int] = {}
    for called in (c for computation in module for c in computation.called()):
        calls[called] = calls.get(called, 0) + 1
    return {computation for computation, count in calls.items() if count > 1}


def private_loops(
    module: Module, outer_first: bool = False, last_first: bool = False
) -> Iterator[tuple[Computation, Instruction]]:
    """Yields the loops whose computations nothing else calls, with the computation that each is in. Loops come after
    those inside of them, or before (`outer_first`), in the order of the text or backwards (`last_first`). They may be
    edited as they come.
    """
    shared = shared_computations(module)

    def inside(computation: Computation) -> Iterator[tuple[Computation, Instruction]]:
        found = computation.having(is_control)
        for control in reversed(found) if last_first else found:
            called = control.called()
            is_private = control.op.role is Role.LOOP and not shared.intersection(called)
            if is_private and outer_first:
                yield computation, control
            for callee in called:
                yield from inside(callee) if callee not in shared else ()
            if is_private and not outer_first:
                yield computation, control

    return inside(module.entry)


def editable_loops(module: Module, computation: Computation) -> list[Instruction]:
    """Returns the loops of a computation whose state and computations may be edited."""
    loops = [i for i in computation.having(is_control) if i.op.role is Role.LOOP and has_plain_state(i)]
    shared = shared_computations(module) if loops else set[Computation]()
    return [i for i in loops if shared.isdisjoint(i.called())]


def has_plain_state(loop: Instruction) -> bool:
    """Whether a loop's state can be extended: it is a tuple that is only taken apart and put together."""
    parameters = [p for called in loop.called() for p in called.parameters]
    values = [loop, *parameters]
    root = loop.attributes_as(WhileAttributes).body.root
    return (
        loop.shape.is_tuple and root.op.role is Role.TUPLE and loop.annotation is None and root.annotation is None
        and loop.parent is not None and loop is not loop.parent.root and not root.users
        and all(p.annotation is None for p in parameters)
        and all(u.op.role is Role.ELEMENT for value in values for u in value.users)
    )  # fmt: skip


def invariant(body: Computation) -> dict[Instruction, None]:
    """Returns the loop-invariant instructions in order: computed from constants, or from state that the body does not
    change.
    """
    (state,) = body.parameters
    found: dict[Instruction, None] = {}
    for instruction in body:
        index = element_index(instruction)
        if index is not None and instruction.operands[0] is state:
            if body.root.operands[index] is instruction:
                found[instruction] = None
            continue
        if is_movable(instruction) and instruction is not state and all(o in found for o in instruction.operands):
            found[instruction] = None
    return found


def is_movable(instruction: Instruction) -> bool:
    """Whether an instruction computes an array from its operands alone, so that it may run elsewhere as well."""
    pure = not instruction.has_effect() and not instruction.op.interface(Draws) and not instruction.op.is_control
    return pure and instruction.shape.is_array and not instruction.control_predecessors


def element(computation: Computation, value: Instruction, index: int) -> Instruction:
    """Returns an element of a tuple: the operand that became it, or a new instruction that takes it."""
    if value.op.role is Role.TUPLE:
        return value.operands[index]
    return computation.add("get-tuple-element", (value,), GetTupleElementAttributes(index), like=value)


def elements(value: Instruction, index: int) -> list[Instruction]:
    """Returns the instructions that take an element of a tuple."""
    return [u for u in value.users if u.op.role is Role.ELEMENT
            and u.attributes_as(GetTupleElementAttributes).index == index]  # fmt: skip


def elements_of(value: Instruction) -> dict[int, list[Instruction]]:
    """Returns the instructions that take elements of a tuple, by the numbers of these, in ascending order."""
    found: dict[int, list[Instruction]] = {}
    for user in value.users:
        if user.op.role is Role.ELEMENT:
            found.setdefault(user.attributes_as(GetTupleElementAttributes).index, []).append(user)
    return dict(sorted(found.items()))


def set_start(computation: Computation, loop: Instruction, index: int, value: Instruction) -> None:
    """Lets a loop begin with another value of one element of its state."""
    (start,) = loop.operands
    values = [element(computation, start, n) if n != index else value for n in range(len(loop.shape.elements))]
    computation.set_operand(loop, 0, computation.add("tuple", values, shape=loop.shape, like=start))
    if not start.users and start is not computation.root and start.op.role is Role.TUPLE:
        computation.remove(start)


def extend(computation: Computation, loop: Instruction, values: Sequence[Instruction]) -> list[Instruction]:
    """Adds values to a loop's state, which the body does not change; returns them inside the body."""
    attributes, (start,) = loop.attributes_as(WhileAttributes), loop.operands
    count = len(loop.shape.elements)
    shape = tuple_shape((*loop.shape.elements, *(v.shape for v in values)))
    starts = [element(computation, start, number) for number in range(count)]
    computation.set_operand(loop, 0, computation.add("tuple", [*starts, *values], shape=shape, like=start))
    if not start.users and start is not computation.root and start.op.role is Role.TUPLE:
        computation.remove(start)
    loop.shape = shape
    (tested,) = attributes.condition.parameters
    tested.shape = shape
    return extend_trip(attributes.body, [v.shape for v in values])


def extend_trip(body: Computation, shapes: Sequence[Shape]) -> list[Instruction]:
    """Adds elements to the state of a loop's body, which returns them as they are; returns them inside of it."""
    (parameter,), old = body.parameters, body.root
    count = len(parameter.shape.elements)
    parameter.shape = tuple_shape((*parameter.shape.elements, *shapes))
    inside = [element(body, parameter, number) for number in range(count, len(parameter.shape.elements))]
    body.root = body.add("tuple", [*old.operands, *inside], shape=parameter.shape, like=old)
    body.remove(old)
    return inside
