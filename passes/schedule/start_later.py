"""Computes later what makes an order too large, until it fits into memory.

    before:  g = all-gather(v)   h = all-gather(w)   x = dot(a, b)   y = dot(x, g)   z = dot(y, h)
    after:   g = all-gather(v)   x = dot(a, b)   h = all-gather(w)   y = dot(x, g)   z = dot(y, h)

A list schedule starts collectives as soon as it can, so that many results wait for their readers at once. A plan within
memory starts few ahead. Between both are orders that keep what fits. Values that live at the peak and are first read
after it can be made after it: what is computed just before its first reader, collectives just after the peak. These may
be late then, so those go first that make their reader wait least per byte, by the seconds of computation between the
peak and the reader. This goes on at the next peak until the order fits, or nothing that lives there can be made later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...cost.seconds import Clock
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.liveness import Lives
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.host_memory import is_host_move
from ...ir.graph.instruction import Instruction
from .order_forecasts import OrderForecasts
from .orders import Needs, Order, dependences, set_orders
from .regather import readers_of
from .roles import is_anchored
from .sent_away import begins_of

_ROUNDS = 16  # without a lower peak, after which no further one is looked for


def start_later(forecasts: OrderForecasts, limit: float) -> int:
    """Changes the orders of a program, in place, until its peak is at most `limit`, or moves lower it no more. Returns
    the peak.
    """
    best, orders, rounds = math.inf, dict[Computation, Order](), 0
    while True:
        peak, found = forecasts.highest()
        if peak < best:
            best, orders, rounds = peak, {c: list(c) for c in forecasts.module}, 0
        rounds += 1
        is_moved = peak > limit and rounds <= _ROUNDS and any(
            _lowered(lives, time, peak - limit, forecasts.clock) for lives, time in found)  # fmt: skip
        if not is_moved:
            set_orders(list(orders), list(orders.values()))
            return int(best)


@brief
@dataclass(frozen=True, slots=True)
class _Late:
    """A value that can be made after the peak, with those that pass it on: from which place on, its bytes, and the
    seconds by which its reader waits then.
    """

    moved: list[Instruction]
    place: float
    size: int
    seconds: float

    @property
    def rank(self) -> tuple[float, bool, int]:
        """Seconds per byte, then what is computed, then the larger first; less is better."""
        return self.seconds / self.size, self.moved[0].op.is_collective, -self.size


def _lowered(lives: Lives, time: int, excess: float, clock: Clock) -> bool:
    """Moves values of a computation to just after its peak, until so many bytes are free there; whether any moved."""
    order = list(lives.computation)
    keys, moved = {i: float(n) for n, i in enumerate(order)}, set[Instruction]()
    for late in sorted(_movable(lives, time, order, clock), key=lambda f: f.rank):
        if excess <= 0:
            break
        if moved.isdisjoint(late.moved):
            moved.update(late.moved)
            keys.update(dict.fromkeys(late.moved, late.place))
            excess -= late.size
    if moved:
        lives.computation.reorder(sorted(order, key=keys.__getitem__))
    return bool(moved)


def _movable(lives: Lives, time: int, order: Sequence[Instruction], clock: Clock) -> Iterator[_Late]:
    """Yields the values that live at a time, were made before, and are read later only."""
    place = {i: n for n, i in enumerate(order)}
    users, begins = _users(dependences(order)), begins_of(order, clock)
    sizes: dict[Instruction, int] = {}
    for buffer in lives.buffers.at(time):
        if buffer.first < time and buffer.inner is None:
            sizes[buffer.instruction] = sizes.get(buffer.instruction, 0) + buffer.size
    for value, size in sizes.items():
        if value.op.is_control or is_anchored(value) or is_host_move(value):
            continue
        moved = _with_views(value, users, place, time)
        given = sum(o.shape.device_bytes for o in set(value.operands) if o.shape.is_array and o in sizes)
        if moved is not None and (value.op.is_collective or size > given):
            needed = min((place[u] for m in moved for u in users.get(m, ()) if u not in moved), default=len(order))
            if not value.op.is_collective:
                yield _Late(moved, needed - 0.5, size, 0.0)
                continue
            read = min((place[r] for r in readers_of(value)), default=len(order))
            room = begins[read] - begins[time + 1]
            yield _Late(moved, time + 0.5, size, max(clock.started(value) - room, 0.0))


def _with_views(
    value: Instruction, users: dict[Instruction, list[Instruction]], place: dict[Instruction, int], time: int
) -> list[Instruction] | None:
    """Returns a value and what passes it on up to a time, in no order; None if something else needs it by then."""
    found, stack = [value], [value]
    while stack:
        for user in users.get(stack.pop(), ()):
            if place[user] <= time and user not in found:
                if not passes_on(user):
                    return None
                found.append(user)
                stack.append(user)
    return found


def _users(needs: Needs) -> dict[Instruction, list[Instruction]]:
    """Maps each instruction to those that need it."""
    found: dict[Instruction, list[Instruction]] = {}
    for user, needed in needs.items():
        for one in needed:
            found.setdefault(one, []).append(user)
    return found
