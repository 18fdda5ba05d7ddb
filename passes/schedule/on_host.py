"""Keeps the entries of a stack on the host between the loop that writes them and the one that reads them.

    before:  forward:   s' = dynamic-update-slice(s, x, i)        backward:  y = dynamic-slice(s, j)
    after:   forward:   s' = dynamic-update-slice(s, to host(x), i)          next = from host(dynamic-slice(s, j + 1))
                                                                             y = carried

An entry leaves while the rest of its trip computes, and comes back one trip before it is read, so that only what the
host's link cannot bring beneath the computation of a trip takes time (Beaumont et al., "Efficient combination of
rematerialization and offloading for training DNNs", 2021). The device has the entries of two trips in place of all.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.analysis.awaited import passes_on
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import is_host_move, moved
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.entries import written_at
from ...ir.ops.structure import moved_constant
from ...ir.tools.control_flow import computations_run
from ..base import PassContext
from ..cleanup.loop_state import elements, set_start
from .rewrites.ahead import carry_ahead
from .rewrites.base import RewriteProgram
from .rewrites.loops import Foreseen, to_the_top

ENTRIES_ON_DEVICE = 2  # that of a trip, and the next one


def moves_to_host(module: Module) -> int:
    """Returns the number of arrays that a program moves to the host."""
    return sum(is_host_move(i) and i.shape.is_on_host for c in computations_run(module) for i in c)


def can_start_on_host(writer: Instruction, number: int) -> bool:
    """Whether a loop begins with an array at this element of its state that any memory may hold: one number."""
    (start,) = writer.operands
    value = start.operands[number]
    return len(value.operands) == 1 and moved_constant(value) is not None


def keep_on_host(
    module: Module, writer: Instruction, reader: Instruction, numbers: tuple[int, int], slices: list[Instruction]
) -> list[Instruction]:
    """Keeps a stack on the host, which is an element of the states of two loops, by these numbers. Returns the values
    of the second loop's body that are read in place of the `slices`.
    """
    computation = writer.parent
    assert computation is not None
    (number, place), first = numbers, _body(writer)
    update = first.root.operands[number]
    first.set_operand(update, 1, move := moved(first, update.operands[1]))
    update.shape = update.shape.on_host()
    first.sort()
    _start_early(first, move)
    _set_on_host(writer, number)
    _set_on_host(reader, place)
    (start,) = writer.operands
    with computation.at(before=writer):
        empty = start.operands[number]
        there = computation.add(empty.op, empty.operands, empty.attributes, empty.shape.on_host(), like=empty)
        set_start(computation, writer, number, there)
    _set_element_on_host(reader.operands[0], place)
    return _brought_back(module, computation, reader, slices)


def spread_moves(module: Module) -> None:
    """Lets all moves of loops start early and end late: a plan of collectives takes them for ops without time."""
    for body in computations_run(module)[1:]:
        moves = [i for i in body if is_host_move(i)]
        for move in moves:
            if move.shape.is_on_host:
                _start_early(body, move)
        ahead = [move for move in moves if not move.shape.is_on_host and list(move.users) == [body.root]]
        if ahead:
            to_the_top(body, ahead)


def _start_early(body: Computation, move: Instruction) -> None:
    """Lets a move to the host start where its array is there, and end where the trip does."""
    views, value = [move], move.operands[0]
    while passes_on(value) and value.op.role is not Role.ELEMENT:
        views.insert(0, value)
        value = value.operands[0]
    updates = [u for u in move.users if written_at(u) is not None and list(u.users) == [body.root]]
    late = {*views, *updates, body.root}
    order = [i for i in body if i not in late]
    following = next(iter(order[order.index(value) + 1 :]), body.root)
    for view in views:
        body.move_before(view, following)
    for update in updates:
        body.move_before(update, body.root)
    body.sort()


def _brought_back(
    module: Module, computation: Computation, reader: Instruction, slices: list[Instruction]
) -> list[Instruction]:
    """Brings entries back to the device, a trip ahead where their index is foreseen; returns them."""
    body = _body(reader)
    found: list[Instruction] = []
    for old in slices:
        old.shape = old.shape.on_host()
        readers = list(old.users)
        with body.at(after=old):
            back = moved(body, old)
        for user in readers:
            for index in [n for n, o in enumerate(user.operands) if o is old]:
                body.set_operand(user, index, back)
        found.append(back)
    foreseen = Foreseen.of(body)
    if not all(back in foreseen.values for back in found):
        to_the_top(body, found)
        return found
    carried, following, _ = carry_ahead(RewriteProgram(module, PassContext()), computation, reader, foreseen, found)
    to_the_top(body, following)
    for back, old in zip(found, slices, strict=True):
        body.remove(back)
        body.remove(old)
    return carried


def _set_on_host(loop: Instruction, number: int) -> None:
    """Says in a loop, and in its computations, that an element of its state lies on the host."""
    for value in (loop, *(p for called in loop.called() for p in called.parameters)):
        _set_element_on_host(value, number)
        for element in elements(value, number):
            element.shape = element.shape.on_host()
    _set_element_on_host(_body(loop).root, number)


def _set_element_on_host(value: Instruction, number: int) -> None:
    parts = list(value.shape.elements)
    parts[number] = parts[number].on_host()
    value.shape = replace(value.shape, elements=tuple(parts))


def _body(loop: Instruction) -> Computation:
    return loop.attributes_as(WhileAttributes).body
