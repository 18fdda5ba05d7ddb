"""Starts the collectives that delay a program earlier, and computes later what they do not need.

    before:  x = dot(a, b)   y = dot(c, d)   s = all-reduce(y)   z = dot(e, f)   r = dot(s, z)
    after:   y = dot(c, d)   s = all-reduce(y)   x = dot(a, b)   z = dot(e, f)   r = dot(s, z)

A list schedule decides at each moment among the ops that are ready then, and plans keep most ops in the order of the
text. Neither sees that what stands before a collective could fill a later stall instead, or that a collective waits
behind another one on its engine. The critical chain of the order says what delays its end (`critical_chain`): each
computation on it is tried after the collective that it delays, each queued collective before the one that it waits for,
each stall later and its collective earlier. A timeline that resumes where an order changes makes such tries cheap.
Changes that make the order faster stay. Where the chain has none, each other collective is tried earlier and later, for
it may free an engine, until there are no such changes either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from ...cost.machine import Machine
from ...cost.resumed import ResumedOrders
from ...cost.sizes import Bytes, timed
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.tools.control_flow import computations_run
from ...ir.tools.trip_count import runs_of_computations
from ..base import Pass, PassContext
from .critical_chain import critical_chain
from .order_forecasts import OrderForecasts
from .orders import Emission, Needs, Order, dependences
from .recorded import record, recorded_bound, recorded_forecast

_NO_LIMIT = Bytes()
_STEPS = tuple(1 << n for n in range(8))  # places by which collectives and stalls are moved
_LEAST = 5e-5  # the share of the time that a computation must take to be tried later
_GAIN = 1e-6  # the share from which on an order is better
_CHECKS = 16  # of the memory of orders, one by one


@dataclass(frozen=True)
class StartEarlier(Pass):
    """Tries up to `tries` changes of the orders of a scheduled program. A program of more than this many `instructions`
    stays, for it takes long, and so does one near its lower bound (a share `worth` of its time). The peak stays within
    `memory` (0: as it is).
    """

    name: ClassVar[str] = "start-earlier"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    memory: Bytes = _NO_LIMIT
    tries: int = 4_000
    instructions: int = 4_000
    worth: float = 1 - 1e-3

    def run(self, module: Module, context: PassContext) -> bool:
        seconds, peak = recorded_forecast(module)
        is_large = sum(map(len, module)) > self.instructions
        if is_large or seconds * self.worth <= (recorded_bound(module) or 0.0):
            return False
        search = _OrderSearch(module, context.machine, max(self.memory, peak), self.tries)
        search.run((1 - self.worth) * seconds)
        if not search.moved:
            return False
        record(module, search.seconds, search.used)
        context.diagnostics.remark(
            f"{self.name}: changes of the order: {search.moved}; {timed(seconds)} become {timed(search.seconds)}"
        )
        return True


class _OrderSearch:
    """The search for faster orders of a program within a peak. `moved` counts the changes that stayed, with which the
    peak is `used`.
    """

    def __init__(self, module: Module, machine: Machine, peak: float, tries: int) -> None:
        self.module, self.forecasts, self.peak, self.tries = module, OrderForecasts.of(module, machine), peak, tries
        self.moved, self.used = 0, 0
        self.seconds = self.forecasts.seconds()

    def run(self, least: float) -> None:
        """Searches the computations that collectives delay by so many seconds in all their runs, callees first."""
        runs = runs_of_computations(self.module)
        for computation in reversed(computations_run(self.module)):
            if not any(step.inner is not None for step in self.forecasts.steps.get(computation, {}).values()):
                continue
            orders = ResumedOrders(computation, self.forecasts.clock, self.forecasts.steps)
            if (orders.seconds - orders.left[0]) * runs.get(computation, 1) > least:
                self._search(computation, orders)

    def _search(self, computation: Computation, orders: ResumedOrders) -> None:
        """Gives a computation the fastest order that was found within the peak, if the program is faster by it."""
        given = list(computation)
        needs = dependences(given)
        emission = Emission(given, needs)

        def peak_of(order: Order) -> int:
            emission.begin()
            emission.emit(order)
            emission.emit(given)
            computation.reorder(emission.order)
            return self.forecasts.peak()

        changes = _Changes(orders, needs, self.tries)
        changes.run()
        kept, used = self._fitting(changes.found, peak_of)
        if kept < len(changes.found):
            changes.go_back(kept)
            changes.fits = lambda order: peak_of(order) <= self.peak
            changes.run()
            kept, used = self._fitting(changes.found, peak_of)
        self.tries = changes.tries
        seconds = self.forecasts.seconds() if kept else self.seconds
        if seconds < self.seconds * (1 - _GAIN):
            self.moved, self.seconds, self.used = self.moved + kept, seconds, used
        else:
            computation.reorder(given)

    def _fitting(self, found: list[Order], peak_of: Callable[[Order], int]) -> tuple[int, int]:
        """Gives a computation the last order, or one before it, with which the program fits; returns its number and the
        peak.
        """
        low, high = 0, len(found)
        if not found:
            return 0, 0
        if (peak := peak_of(found[-1])) <= self.peak:
            return high, peak
        while high - low > 1:
            number = (low + high) // 2
            low, high = (number, high) if peak_of(found[number - 1]) <= self.peak else (low, number)
        return low, peak_of(found[low - 1]) if low else 0


_Change = tuple[int, Order]  # the instructions from the first place to the last one at which an order changes


class _Changes:
    """Changes of one order that make it faster: the orders `found`, the fastest last. If not all of these fit into
    memory, further ones must be such as `fits` says, which takes long: so many `checks` are made at most. The changes
    of each order that do not make it faster are kept in `idle`, for they come again.
    """

    def __init__(self, orders: ResumedOrders, needs: Needs, tries: int) -> None:
        self.orders, self.tries, self.found = orders, tries, list[Order]()
        self.needs = _needs_of(orders, needs)
        self.given, self.places = orders.order, {i: place for place, i in enumerate(orders.order)}
        self.fits: Callable[[Order], bool] | None = None
        self.checks, self.refused = _CHECKS, set[tuple[Instruction, ...]]()
        self.idle = [set[tuple[int, tuple[Instruction, ...]]]()]  # of the given order, and of each that was found

    def go_back(self, number: int) -> None:
        """Goes on from this order of those found, 0 for the first of all."""
        del self.found[number:], self.idle[number + 1 :]
        self.orders.begin(self.found[-1] if self.found else self.given)
        self.places = {i: place for place, i in enumerate(self.orders.order)}

    def run(self) -> None:
        """Changes the order as long as something on its critical chain makes it faster."""
        before = -1
        while before < len(self.found) and self.tries > 0:
            before = len(self.found)
            critical = critical_chain(self.orders)
            for collective, stalling in critical.awaited:
                self._best(self._earlier(collective, _STEPS))
                if stalling is not None:
                    self._best(self._later(stalling, _STEPS))
            for collective, other in critical.queued:
                if (step := self.places[collective] - self.places[other]) > 0:
                    self._best(chain(self._earlier(collective, (step,)), self._later(other, (step,))))
            for computations, collective in critical.delaying:
                for one in sorted(computations, key=lambda i: -self.orders.steps[i].seconds):
                    self._behind(one, collective)
            if before == len(self.found):
                self._move_collectives()

    def _move_collectives(self) -> None:
        """Tries each collective earlier and later: one that no chain holds may free an engine for others."""
        for one in [i for i in self.orders.order if self.orders.steps[i].inner is not None]:
            self._best(chain(self._earlier(one, _STEPS), self._later(one, _STEPS)))

    def _behind(self, computation: Instruction, collective: Instruction) -> None:
        """Tries a computation on the chain after the collective that it delays."""
        step, distance = self.orders.steps[computation], self.places[collective] - self.places[computation]
        if step.inner is None and step.seconds >= _LEAST * self.orders.seconds and distance > 0:
            self._best(self._later(computation, (distance,)))

    def _earlier(self, instruction: Instruction, steps: Iterable[int]) -> Iterator[_Change]:
        """Yields the changes by which an instruction, with all that it needs, comes so many places earlier."""
        order, end = self.orders.order, self.places[instruction]
        place = first = end
        moved, others, count = [instruction], list[Instruction](), 0  # from the last to the first
        needed = set(self.needs[instruction])
        for step in steps:
            while place > max(end - step, 0):
                place -= 1
                if (i := order[place]) in needed:
                    moved.append(i)
                    needed |= self.needs[i]
                else:
                    others.append(i)
                    first, count = place, len(moved)
            yield first, [*moved[count - 1 :: -1], *others[::-1]] if others else []

    def _later(self, instruction: Instruction, steps: Iterable[int]) -> Iterator[_Change]:
        """Yields the changes by which an instruction, with all that needs it, comes so many places later."""
        order, first = self.orders.order, self.places[instruction]
        place, moved, others, count = first, [instruction], list[Instruction](), 0
        above = {instruction}
        for step in steps:
            for i in order[place + 1 : first + step + 1]:
                if above.isdisjoint(self.needs[i]):
                    others.append(i)
                    count = len(moved)
                else:
                    moved.append(i)
                    above.add(i)
            place = first + step
            yield first, [*others, *moved[:count]]

    def _best(self, changes: Iterable[_Change]) -> None:
        """Makes the best of some changes, if the order is faster by it."""
        orders, idle, best = self.orders, self.idle[-1], None
        least = below = orders.seconds * (1 - _GAIN)
        for first, new in changes:
            if not new or self.tries <= 0:
                continue
            self.tries -= 1
            if (change := (first, tuple(new))) in idle:
                continue
            if (seconds := orders.tried(first, new)) < below:
                below, best = seconds, (first, new)
            elif seconds >= least:
                idle.add(change)
        if best is None:
            return
        first, new = best
        order = [*orders.order[:first], *new, *orders.order[first + len(new) :]]
        if self.fits is not None and not self._is_checked(tuple(new), order):
            return
        orders.begin(order, first)
        self.places.update((i, first + n) for n, i in enumerate(new))
        self.found.append(orders.order)
        self.idle.append(set())

    def _is_checked(self, new: tuple[Instruction, ...], order: Order) -> bool:
        """Whether a changed order fits, as far as checks are left."""
        if self.fits is None or new in self.refused or not self.checks:
            return False
        self.checks -= 1
        if self.fits(order):
            return True
        self.refused.add(new)
        return False


def _needs_of(orders: ResumedOrders, needs: Needs) -> Mapping[Instruction, frozenset[Instruction]]:
    """Returns the dependences among the instructions of orders, through those that take no time."""
    found: dict[Instruction, frozenset[Instruction]] = {}
    through: dict[Instruction, frozenset[Instruction]] = {}
    for i, needed in needs.items():
        parts = [through[o] for o in needed]
        through[i] = before = parts[0] if len(parts) == 1 else frozenset[Instruction]().union(*parts)
        if i in orders.steps:
            found[i], through[i] = before, frozenset((i,))
    return found
