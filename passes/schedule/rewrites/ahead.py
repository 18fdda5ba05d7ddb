"""Lets the trips of a loop compute values of the next trip and carry them to it in the loop's state.

    before:  body:  v = f(x)   y = g(v)              first: v0 = f(x0)
    after:   body:  y = g(carried)   next = f(y)     -- returns y, next

`carry_ahead` makes the values of the first trip before the loop, and in each trip those of the next one. The last trip
then makes them once more, for a trip that does not come: nobody reads these, and they are ops without effects, whose
indices the ops themselves clamp. Where the loop runs one trip less, `last_trip` runs the last one after it, and that
one makes no such values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ...cleanup.loop_state import element, elements, extend
from .base import Edits, RewriteProgram
from .loops import Foreseen, body_of, copy_values, needed_for, one_trip, state_index


def carry_ahead(
    program: RewriteProgram, computation: Computation, loop: Instruction, foreseen: Foreseen,
    values: Sequence[Instruction],
) -> tuple[list[Instruction], list[Instruction], int]:
    """Lets each trip of a loop make values of the next one, and carry them in new elements of the state; the first
    trip's are made before the loop. Returns the carried values, which the body reads in place of the old ones, those
    that it makes for the next trip, and the number of the first new element.
    """
    body, count = body_of(loop), len(loop.shape.elements)
    with computation.at(before=loop):
        (start,) = loop.operands
        needed = needed_for(values, ())
        given = {i: element(computation, start, n) for i in body
                 if i in needed and (n := state_index(body, i)) is not None}  # fmt: skip
        first = copy_values(program, computation, body, values, given)
        carried = extend(computation, loop, first)
    return carried, make_next(program, body, foreseen, values, carried), count


def make_next(
    program: RewriteProgram, body: Computation, foreseen: Foreseen, values: Sequence[Instruction],
    carried: Sequence[Instruction],
) -> list[Instruction]:
    """Replaces values in a body by the `carried` ones, the last elements of its state, and appends and returns those of
    the next trip, which it carries.
    """
    varying = foreseen.varying(body)
    given = {i: i for i in foreseen.values if i not in varying}
    given |= {i: body.root.operands[n] for i in needed_for(values, given)
              if (n := state_index(body, i)) is not None}  # fmt: skip
    following = copy_values(program, body, body, values, given)
    for value, inside in zip(values, carried, strict=True):
        body.replace_all_uses(value, inside)
    count = len(body.root.operands) - len(carried)
    for number, value in enumerate(following):
        body.set_operand(body.root, count + number, value)
    return following


def last_trip(program: RewriteProgram, edits: Edits, loop: Instruction, count: int) -> None:
    """Runs the last trip of a loop after it, which takes the carried values, from element `count` of the state on, and
    makes none.
    """
    body, computation = body_of(loop), edits.computation
    readers = {n: elements(loop, n) for n in range(count)}
    used = [n for n in range(count) if readers[n]]
    with computation.at(after=loop):
        state = [computation.build("get-tuple-element", loop, index=n, like=loop)
                 for n in range(len(loop.shape.elements))]  # fmt: skip
        results = one_trip(program, computation, body, state, [body.root.operands[n] for n in used])
    for n, result in zip(used, results, strict=True):
        for reader in readers[n]:
            edits.replace(reader, result)
    edits.unused(state)
