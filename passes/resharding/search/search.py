"""The cheapest path between two states of a resharding, by A*.

The estimate of what is still to come is `bound`, at the pace of the fastest link; it is never too high, so the first
path that arrives is the cheapest. States are the same for all numbers of devices, so a search takes milliseconds; one
that looks at very many steps ends with the best path that it has.

Steps build towards the goal. A way round may be cheaper than all these ways, where links differ or tiles are padded
above all: if the way found costs more than the bound, a second search takes steps anywhere, as long as they cost less.
On small meshes it takes digits apart into primes, in all ways, and finds whatever there is.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from functools import cache, partial

from ....cost.links import Link, Links
from ....ir.sharding.digit import Digit, Digits, cut, primes, refine, split
from ....ir.sharding.tiling import Tiling
from ..moves import Move, Plan
from .bound import DeviceBound, bound
from .state import Space, State, state_of
from .steps import Step, steps

_SAME = 1e-6  # costs that differ by less are the same
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
    links: Links
    memory: float
    may_replicate: bool = False

    def cost(self, received: float, link: Link) -> float:
        """The toll of a collective in which each device receives so many elements; of none, no toll."""
        return self.links.toll_of(link, self.size).of(received)


@dataclass(frozen=True, slots=True)
class Found:
    """The cheapest plan if there is one, elements that have to be received in any case, and states looked at."""

    plan: Plan | None
    least: float
    looked_at: int


def space_of(source: Tiling, target: Tiling, problem: Problem, detours: bool = False) -> tuple[State, Space]:
    """Where a search begins, and what it moves in. The tilings must be of one order, or one of them of none."""
    namings = [refine([mesh]) for mesh in _meshes(source, target, problem, detours)]
    start, goal = state_of(source, problem.dims, namings[0]), state_of(target, problem.dims, namings[-1])
    # What no device holds whole at either end, none holds whole on the way. A tile can be the whole, digits or not:
    # a dimension of one element is whole in each of its tiles.
    may_replicate = problem.may_replicate or max(start.elements(), goal.elements()) >= math.prod(problem.dims)
    order = source.order if source.used() else target.order
    everyone = (Digit(problem.devices, 1),)
    atoms = tuple(dict.fromkeys(digit for places in namings for digit in cut(everyone, places)))
    space = Space(
        problem.dims, goal, atoms, problem.devices, order, problem.memory, may_replicate, not source.unreduced, detours,
        tuple(namings) if len(namings) > 1 else (),
    )
    return start, space


def _meshes(source: Tiling, target: Tiling, problem: Problem, detours: bool) -> list[Digits]:
    """All digits of the device number, cut as both ends need it; as either end does if there is no common refinement.

    For detours on small meshes, all ways to cut it into digits of prime size.
    """
    everyone = (Digit(problem.devices, 1),)
    sizes = [d.size for d in primes(everyone)]
    if detours and len(sizes) <= _MOST_PARTS:
        orders = dict.fromkeys(itertools.permutations(sizes))
        return [tuple(itertools.chain(*(split(everyone, order) or ()))) for order in orders]
    ends = [refine(end.digits()) for end in (source, target)]
    cuts = ends[0] | ends[1]
    if any(high % low for low, high in itertools.pairwise(sorted(cuts))):
        return [cut(everyone, places) for places in ends]
    if detours:
        # Digits within one level of links may then move without the rest.
        levels = (stride for stride, _ in problem.links.levels)
        cuts |= {n for n in levels if all(n % c == 0 or c % n == 0 for c in cuts)}
    return [cut(everyone, cuts)]


def search(source: Tiling, target: Tiling, problem: Problem, below: float = math.inf) -> Found:
    """The cheapest plan by mesh collectives towards the target, within the memory and without replicating.

    Only one that costs less than `below`.
    """
    return _search(*space_of(source, target, problem), problem, below)


def detour(source: Tiling, target: Tiling, problem: Problem, least: float, below: float) -> Plan | None:
    """A plan by any mesh collectives that costs less than `below`, if there is one not far away.

    `least` are the elements that have to be received in any case. Sums over links that are alike take none: splitting
    the work of an all-reduce among devices that hold the same saves bytes, but takes two more collectives.
    """
    links, ordered = problem.links, source.order is not None or target.order is not None
    if ordered or (links.uniform and source.unreduced) or below <= problem.cost(least, links.fastest) + _SAME:
        return None
    return _search(*space_of(source, target, problem, detours=True), problem, below - _SAME).plan


def _search(start: State, space: Space, problem: Problem, below: float) -> Found:
    """The cheapest plan that costs less than `below`, if there is one, or the best after many steps."""
    most = math.inf if space.may_replicate else math.prod(problem.dims) - 1
    fast = problem.links.toll_of(problem.links.fastest, problem.size)
    toll = cache(partial(problem.links.toll, size=problem.size, order=space.order))
    exact = space.detours and space.devices <= _FEW_DEVICES
    bound_of = DeviceBound(space) if exact else partial(bound, space=space)
    least = bound_of(start)
    best: dict[State, float] = {start: 0.0}
    arrived: dict[State, tuple[State, Step]] = {}
    queue: list[tuple[float, float, int, State, float]] = [(fast.of(least), 0.0, 0, start, 0.0)]
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
        for step in steps(state, space, fast.most(below - cost)):
            taken += 1
            after, total = step.after, cost + toll(step.digits).of(step.received)
            if total >= below or total >= best.get(after, below):
                continue
            size = after.elements()
            if held + size > space.memory or size > most:
                continue
            rest = fast.of(bound_of(after))
            if total + rest < below:
                if not rest and space.is_goal(after):
                    reached, below = after, total
                best[after] = total
                arrived[after] = (state, step)
                pushed += 1
                heapq.heappush(queue, (total + rest, rest, pushed, after, total))
    plan = _path(reached, start, arrived, best[reached]) if reached else None
    return Found(plan, least, looked_at)


def _path(end: State, start: State, arrived: dict[State, tuple[State, Step]], cost: float) -> Plan:
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
