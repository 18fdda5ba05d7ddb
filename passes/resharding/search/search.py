"""The cheapest path between two states of a resharding, by A*.

The heuristic is `bound` at the rate of the fastest collective. It never overestimates, so the first path to reach the
goal is the cheapest. The number of states does not depend on the number of devices, so a search takes milliseconds;
after `_MOST_STEPS` steps it returns the best path so far.

Steps build towards the goal. A detour may be cheaper, above all where the machine has levels or tiles are padded. If
the path found costs more than the bound, a second search allows steps anywhere, as long as they cost less. On small
meshes it also splits digits into primes in all orders, and is exhaustive.
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
from ....cost.transfer import Transfer
from ....ir.sharding.digit import Digit, Digits, cut, primes, refine, split
from ....ir.sharding.tiling import Tiling
from ..base.moves import Move, ReshardPlan
from .bound import DeviceBound, bound
from .state import SearchSpace, TilingState, state_of
from .steps import SearchStep, steps

_SAME = 1e-5  # costs that differ by less count as equal
Estimate = Callable[[TilingState, SearchSpace], float]

_CLOSE = 1 + 1e-9  # times the lower bound, below which no detour is looked for
_MOST_STEPS = 6000  # steps after which a search ends with its best plan
_FEW_DEVICES = 64  # most devices for which detours use the exact bound
_MOST_PARTS = 4  # most digits of prime size that detours split in all orders


@dataclass(frozen=True, slots=True)
class ReshardProblem:
    """An array with these global dimensions and elements of `size` bytes, over this many devices.

    `memory` limits the elements that a device holds of the array at any time, before and after a move together. A plan
    may hold the whole array on the way only if an end does so too, or if the problem `may_replicate`.
    """

    dims: tuple[int, ...]
    devices: int
    size: float
    machine: Machine
    memory: float
    may_replicate: bool = False

    def time(
        self, kind: Kind, received: float, digits: Digits | None = None, order: tuple[int, ...] | None = None
    ) -> float:
        """Returns the time of a collective in which each device receives `received` elements; without digits, from any
        devices.
        """
        return self.machine.collective(kind, digits, order).time(received * self.size)

    def least_time(self, received: float) -> float:
        """Returns a lower bound on the time of collectives in which a device receives `received` elements."""
        return self.machine.fastest.time(received * self.size)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The cheapest plan if there is one, a lower bound on the elements received, and the number of states expanded."""

    plan: ReshardPlan | None
    least: float
    looked_at: int


def space_of(
    source: Tiling, target: Tiling, problem: ReshardProblem, detours: bool = False
) -> tuple[TilingState, SearchSpace]:
    """Returns the start of a search and its space. The tilings must have the same device order, or one of them none."""
    cut_sets = [refine([mesh]) for mesh in _meshes(source, target, problem, detours)]
    start, goal = state_of(source, problem.dims, cut_sets[0]), state_of(target, problem.dims, cut_sets[-1])
    # If no device holds the whole array at either end, none may hold it on the way. A tile can be the whole array even
    # with digits: a dimension of one element is complete in each of its tiles.
    may_replicate = problem.may_replicate or max(start.elements(), goal.elements()) >= math.prod(problem.dims)
    order = source.order if source.used() else target.order
    all_devices = (Digit(problem.devices, 1),)
    unit_digits = tuple(dict.fromkeys(digit for places in cut_sets for digit in cut(all_devices, places)))
    space = SearchSpace(
        problem.dims, goal, unit_digits, problem.devices, order, problem.memory, may_replicate, not source.unreduced,
        detours, tuple(cut_sets) if len(cut_sets) > 1 else (),
    )
    return start, space


def _meshes(source: Tiling, target: Tiling, problem: ReshardProblem, detours: bool) -> list[Digits]:
    """Returns all digits of the device number, cut as both ends need it; one mesh per end if there is no common
    refinement.

    For detours on small meshes, returns all ways to cut the device number into digits of prime size.
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
        # Cutting at levels lets digits within one level move without the rest.
        cuts |= {n for n in problem.machine.levels if all(n % c == 0 or c % n == 0 for c in cuts)}
    return [cut(all_devices, cuts)]


def search(
    source: Tiling, target: Tiling, problem: ReshardProblem, below: float = math.inf, estimate: Estimate = bound
) -> SearchOutcome:
    """Finds the cheapest plan of mesh collectives towards the target that costs less than `below`.

    The plan stays within the memory, and does not replicate unless the problem may. `estimate` guides the search, and
    must be a lower bound on the elements received from a state on.
    """
    return _search(*space_of(source, target, problem), problem, below, estimate)


def detour(source: Tiling, target: Tiling, problem: ReshardProblem, least: float, below: float) -> ReshardPlan | None:
    """Finds a plan of any mesh collectives that costs less than `below`, if there is one nearby.

    `least` is the lower bound on the elements received. Sums on a machine without levels take no detours: splitting the
    work of an all-reduce among devices that hold the same value saves bytes, but takes two more collectives.
    """
    ordered = source.order is not None or target.order is not None
    settled = bool(source.unreduced) and not problem.machine.levels
    if ordered or settled or below <= problem.least_time(least) * _CLOSE + _SAME:
        return None
    return _search(*space_of(source, target, problem, detours=True), problem, below - _SAME).plan


def _search(
    start: TilingState, space: SearchSpace, problem: ReshardProblem, below: float, estimate: Estimate = bound
) -> SearchOutcome:
    """Finds the cheapest plan that costs less than `below`, or the best one after `_MOST_STEPS` steps."""
    most = math.inf if space.may_replicate else math.prod(problem.dims) - 1
    time, fastest, size = _timer(problem, space.order), problem.machine.fastest, problem.size
    exchange = _least_exchange(problem.machine, space.unit_digits) if space.order is None else fastest
    exact = space.detours and space.devices <= _FEW_DEVICES
    bound_of: Callable[[TilingState], float] = DeviceBound(space) if exact else lambda state: estimate(state, space)
    least = bound_of(start)
    best: dict[TilingState, float] = {start: 0.0}
    arrived: dict[TilingState, tuple[TilingState, SearchStep]] = {}
    queue: list[tuple[float, float, int, TilingState, float]] = [(fastest.time(least * size), 0.0, 0, start, 0.0)]
    looked_at = pushed = taken = 0
    reached: TilingState | None = None
    while queue and taken < _MOST_STEPS:
        _, _, _, state, cost = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if space.is_goal(state):
            reached = state
            break
        looked_at += 1
        held = state.elements()
        left = below - cost
        for step in steps(state, space, fastest.most(left) / size, exchange.most(left) / size):
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
    return SearchOutcome(plan, least, looked_at)


@cache
def _least_exchange(machine: Machine, digits: Digits) -> Transfer:
    """Returns a lower bound on the cost of all-to-alls over some of these digits: exact if they are few."""
    if not 0 < len(digits) <= _MOST_PARTS:
        return machine.fastest
    chosen = [some for n in range(len(digits)) for some in itertools.combinations(digits, n + 1)
              if not any(a.overlaps(b) for a, b in itertools.combinations(some, 2))]  # fmt: skip
    found = [machine.collective("all-to-all", some) for some in chosen]
    return Transfer.best(one for transfer in found for one in (transfer, *transfer.others))


def _timer(problem: ReshardProblem, order: tuple[int, ...] | None) -> Callable[[SearchStep], float]:
    """Returns a function that computes the time of a step."""
    transfer = cache(partial(problem.machine.collective, order=order))

    def time(step: SearchStep) -> float:
        kind = step.kind
        return transfer(kind, step.digits).time(step.received * problem.size) if kind else 0.0

    return time


def _path(
    end: TilingState, start: TilingState, arrived: dict[TilingState, tuple[TilingState, SearchStep]], cost: float
) -> ReshardPlan:
    moves: list[Move] = []
    received, peak = 0.0, float(end.elements())
    while end != start:
        before, step = arrived[end]
        if (move := step.move_from(before)) is not None:
            moves.append(move)
        received += step.received
        peak = max(peak, before.elements() + end.elements())
        end = before
    return ReshardPlan(tuple(reversed(moves)), received, cost, peak=peak)
