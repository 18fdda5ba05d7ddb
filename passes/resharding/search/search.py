"""The cheapest path between two states of a resharding, by A*.

The estimate of what is still to come is `bound`, at the pace of the fastest collective; it is never too high, so the
first path that arrives is the cheapest. States are the same for all numbers of devices, so a search takes milliseconds;
one that looks at very many steps ends with the best path that it has.

Steps build towards the goal. A way round may be cheaper than all these ways, above all where the machine has levels or
tiles are padded: if the way found costs more than the bound, a second search takes steps anywhere, as long as they cost
less. On small meshes it takes digits apart into primes, in all ways, and finds whatever there is.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from ....cost.formulas import Kind
from ....cost.machine import Machine
from ....ir.sharding.digit import Digit, Digits, cut, primes, refine, split
from ....ir.sharding.tiling import Tiling
from ..base.moves import Move, Plan
from .bound import DeviceBound, bound
from .state import Space, State, state_of
from .steps import SearchStep, steps

_SAME = 1e-5  # costs that differ by less are the same
_MOST_STEPS = 6000  # looked at before a search ends with the best plan that it has
_FEW_DEVICES = 64  # that a search for detours looks at
_MOST_PARTS = 4  # digits of prime size that detours may take apart


@dataclass(frozen=True, slots=True)
class Problem:
    """An array of these (global) dimensions, with elements of `size` bytes, over this many devices.

    `memory` bounds the elements that a device holds of the array at any time, before and after a move together. All of
    it is held on the way where an end does so too, or if it `may_replicate`.
    """

    dims: tuple[int, ...]
    devices: int
    size: int
    machine: Machine
    memory: float
    may_replicate: bool = False

    def time(
        self, kind: Kind, received: float, digits: Digits | None = None, order: tuple[int, ...] | None = None
    ) -> float:
        """A collective in which each device receives so many elements, from any devices if no digits are given."""
        return self.machine.collective(kind, digits, order).time(received * self.size)

    def least_time(self, received: float) -> float:
        """No collectives in which a device receives so many elements take less."""
        return self.machine.fastest.time(received * self.size)


@dataclass(frozen=True, slots=True)
class Found:
    """The cheapest plan if there is one, elements that have to be received in any case, and states looked at."""

    plan: Plan | None
    least: float
    looked_at: int


def space_of(source: Tiling, target: Tiling, problem: Problem, detours: bool = False) -> tuple[State, Space]:
    """Where a search begins, and what it moves in. The tilings must be of one order, or one of them of none."""
    cut_sets = [refine([mesh]) for mesh in _meshes(source, target, problem, detours)]
    start, goal = state_of(source, problem.dims, cut_sets[0]), state_of(target, problem.dims, cut_sets[-1])
    # What no device holds whole at either end, none holds whole on the way. A tile can be the whole, digits or not:
    # a dimension of one element is whole in each of its tiles.
    may_replicate = problem.may_replicate or max(start.elements(), goal.elements()) >= math.prod(problem.dims)
    order = source.order if source.used() else target.order
    all_devices = (Digit(problem.devices, 1),)
    unit_digits = tuple(dict.fromkeys(digit for places in cut_sets for digit in cut(all_devices, places)))
    space = Space(
        problem.dims, goal, unit_digits, problem.devices, order, problem.memory, may_replicate, not source.unreduced,
        detours, tuple(cut_sets) if len(cut_sets) > 1 else (),
    )
    return start, space


def _meshes(source: Tiling, target: Tiling, problem: Problem, detours: bool) -> list[Digits]:
    """All digits of the device number, cut as both ends need it; as either end does if there is no common refinement.

    For detours on small meshes, all ways to cut it into digits of prime size.
    """
    all_devices = (Digit(problem.devices, 1),)
    sizes = [d.size for d in primes(all_devices)]
    if detours and len(sizes) <= _MOST_PARTS:
        orders = dict.fromkeys(itertools.permutations(sizes))
        return [tuple(itertools.chain(*(split(all_devices, order) or ()))) for order in orders]
    ends = [refine(end.digits()) for end in (source, target)]
    cuts = ends[0] | ends[1]
    if any(high % low for low, high in itertools.pairwise(sorted(cuts))):
        return [cut(all_devices, places) for places in ends]
    if detours:
        # Digits within one level may then move without the rest.
        cuts |= {n for n in problem.machine.levels if all(n % c == 0 or c % n == 0 for c in cuts)}
    return [cut(all_devices, cuts)]


def search(source: Tiling, target: Tiling, problem: Problem, below: float = math.inf) -> Found:
    """The cheapest plan by mesh collectives towards the target, within the memory and without replicating.

    Only one that costs less than `below`.
    """
    return _search(*space_of(source, target, problem), problem, below)


def detour(source: Tiling, target: Tiling, problem: Problem, least: float, below: float) -> Plan | None:
    """A plan by any mesh collectives that costs less than `below`, if there is one not far away.

    `least` are the elements that have to be received in any case. Sums on a machine without levels take none: splitting
    the work of an all-reduce among devices that hold the same saves bytes, but takes two more collectives.
    """
    ordered = source.order is not None or target.order is not None
    settled = bool(source.unreduced) and not problem.machine.levels
    if ordered or settled or below <= problem.least_time(least) + _SAME:
        return None
    return _search(*space_of(source, target, problem, detours=True), problem, below - _SAME).plan


def _search(start: State, space: Space, problem: Problem, below: float) -> Found:
    """The cheapest plan that costs less than `below`, if there is one, or the best after many steps."""
    most = math.inf if space.may_replicate else math.prod(problem.dims) - 1
    time, fastest, size = _timer(problem, space.order), problem.machine.fastest, problem.size
    exact = space.detours and space.devices <= _FEW_DEVICES
    bound_of = DeviceBound(space) if exact else partial(bound, space=space)
    least = bound_of(start)
    best: dict[State, float] = {start: 0.0}
    arrived: dict[State, tuple[State, SearchStep]] = {}
    queue: list[tuple[float, float, int, State, float]] = [(fastest.time(least * size), 0.0, 0, start, 0.0)]
    looked_at = pushed = taken = 0
    reached: State | None = None
    while queue and taken < _MOST_STEPS:
        _, _, _, state, cost = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if space.is_goal(state):
            reached = state
            break
        looked_at += 1
        held = state.elements()
        for step in steps(state, space, fastest.most(below - cost) / size):
            taken += 1
            after, total = step.after, cost + time(step) if step.received else cost
            if total >= below or total >= best.get(after, below):
                continue
            holding = after.elements()
            if held + holding > space.memory or holding > most:
                continue
            rest = fastest.time(bound_of(after) * size)
            if total + rest < below:
                if not rest and space.is_goal(after):
                    reached, below = after, total
                best[after] = total
                arrived[after] = (state, step)
                pushed += 1
                heapq.heappush(queue, (total + rest, rest, pushed, after, total))
    plan = _path(reached, start, arrived, best[reached]) if reached else None
    return Found(plan, least, looked_at)


def _timer(problem: Problem, order: tuple[int, ...] | None) -> Callable[[SearchStep], float]:
    """How long a step takes."""
    transfer = cache(partial(problem.machine.collective, order=order))

    def time(step: SearchStep) -> float:
        kind = step.move.kind if step.move else None
        return transfer(kind, step.digits).time(step.received * problem.size) if kind else 0.0

    return time


def _path(end: State, start: State, arrived: dict[State, tuple[State, SearchStep]], cost: float) -> Plan:
    moves: list[Move] = []
    received, peak = 0.0, float(end.elements())
    while end != start:
        before, step = arrived[end]
        if step.move is not None:
            moves.append(step.move)
        received += step.received
        peak = max(peak, before.elements() + end.elements())
        end = before
    return Plan(tuple(reversed(moves)), received, cost, peak=peak)
