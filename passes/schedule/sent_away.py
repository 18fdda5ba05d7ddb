"""Keeps values on the host while no one reads them, where no loop saves them.

    before:  t = tanh(h)   y = dot(t, w)   ..   d = multiply(e, t)
    after:   t = tanh(h)   a = to host(t)   y = dot(t, w)   s = dynamic-update-slice(.., a)   ..
             b = from host(s)   ..   d = multiply(e, b)

A value that lives through the memory peak leaves as soon as it is there. It is awaited where it is written into an
array of the host, as an entry of a loop's stack is (`on_host`): until then, the device has it as well. It comes back
just in time for its first late reader. Both moves run beside the computation, one at a time in each direction, so that
only those take time for which there is not enough computation (Rajbhandari et al., "ZeRO-Infinity", 2021).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...cost.seconds import Clock, trips_of
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import is_host_move, moved, runs_apart
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.entries import written_at
from ...ir.types.shape import array
from ..cleanup.dce import sweep
from .orders import set_orders
from .regather import divert, readers_of


@brief
@dataclass(frozen=True, slots=True)
class Leave:
    """The moves of a value: to the host, where it is written there, and back."""

    move: Instruction
    written: Instruction
    back: Instruction


@dataclass(slots=True)
class HostLink:
    """One direction of the link to the host, which moves one value at a time: each has the seconds from which on it may
    move, and those that it takes. All should have been moved at the `end`.
    """

    end: float
    moves: list[tuple[float, float]]

    def late(self, *more: tuple[float, float]) -> float:
        """Returns the seconds after the end at which all are moved, and some more."""
        free = 0.0
        for begin, seconds in sorted([*self.moves, *more]):
            free = max(free, begin) + seconds
        return max(free - self.end, 0.0)


def send_away(
    computation: Computation, value: Instruction, late: Collection[Instruction], peak: Instruction, first: Instruction
) -> None:
    """Keeps a value on the host while an instruction runs, at the `peak`, for its `late` readers of which one is the
    `first`.
    """
    entry = array(value.shape.element, (1, *value.shape.dims))
    with computation.at(after=value):
        move = moved(computation, computation.build("reshape", value, shape=entry, like=value))
    with computation.at(before=peak):
        zero, index = computation.constant(0, value.shape.element.name), computation.constant(0)
        empty = computation.build("broadcast", zero, shape=entry.on_host(), like=value, dimensions=())
        written = computation.build("dynamic-update-slice", empty, move, *[index] * len(entry.dims),
                                    shape=entry.on_host(), like=value)  # fmt: skip
    with computation.at(after=peak):
        back = moved(computation, written)
    with computation.at(before=first):
        here = computation.build("reshape", back, shape=value.shape, like=value)
        divert(computation, value, here, late)


def leaves_of(computation: Computation) -> Iterator[Leave]:
    """Yields the values that a computation keeps on the host."""
    for back in computation:
        if is_host_move(back) and not back.shape.is_on_host:
            (written,) = back.operands
            if written_at(written) is not None and is_host_move(move := written.operands[1]):
                yield Leave(move, written, back)


def spread_leaves(computation: Computation, clock: Clock) -> None:
    """Lets values leave as soon as they are there, be written where the link has brought them, and come back just in
    time; none is written later than before, or comes back sooner.
    """
    if next(leaves_of(computation), None) is None:
        return
    sweep(computation)  # what read a value may be computed again elsewhere
    found = list(leaves_of(computation))
    order = list(computation)
    place = {i: n for n, i in enumerate(order)}
    begins = begins_of(order, clock)
    keys = {i: float(n) for n, i in enumerate(order)}
    free = 0.0
    for one in sorted(found, key=lambda f: place[f.move]):
        made = max(place[o] for o in one.move.operands[0].operands)
        free = max(free, begins[made + 1]) + clock.started(one.move)
        there = next((n for n in range(made + 1, len(order)) if begins[n] >= free), len(order))
        keys[one.move.operands[0]], keys[one.move] = made + 0.1, made + 0.2
        keys[one.written] = min(max(there - 0.5, made + 0.3), keys[one.written])
        for operand in one.written.operands:
            if operand is not one.move:
                keys[operand] = min(keys[one.written], keys[operand])
    needed = {one: min(place[r] for r in readers_of(one.back)) for one in found}
    late = begins[-1]
    for one in sorted(found, key=lambda f: needed[f], reverse=True):
        late = min(late, begins[needed[one]]) - clock.started(one.back)
        start = next((n for n in range(needed[one], -1, -1) if begins[n] <= late), 0)
        keys[one.back] = max(keys[one.back], min(start, needed[one]) - 0.4)
    set_orders([computation], [sorted(order, key=lambda i: keys[i])])
    computation.sort()


def links_at(computation: Computation, clock: Clock, peak: float, begins: Sequence[float]) -> tuple[HostLink, HostLink]:
    """Returns both directions of the link, until and (counted from the end) from the seconds of the peak on, given
    those at which each instruction begins.
    """
    place = {i: n for n, i in enumerate(computation)}
    links = HostLink(peak, []), HostLink(begins[-1] - peak, [])
    for one in leaves_of(computation):
        seconds = clock.started(one.move)
        links[0].moves.append((begins[place[one.move]], seconds))
        needed = min((place[r] for r in readers_of(one.back)), default=len(place))
        links[1].moves.append((begins[-1] - begins[needed], seconds))
    return links


def begins_of(order: Sequence[Instruction], clock: Clock) -> list[float]:
    """Returns the seconds at which each instruction of an order begins, and the last one ends, if nothing waits."""
    return list(accumulate((_seconds(i, clock) for i in order), initial=0.0))


def _seconds(instruction: Instruction, clock: Clock) -> float:
    if runs_apart(instruction):
        return 0.0
    if not instruction.op.is_control:
        return clock.parts(instruction).compute
    called = [clock.serial(c).total for c in instruction.called()]
    return max(called) if instruction.op.role is Role.BRANCH else trips_of(instruction) * sum(called)
