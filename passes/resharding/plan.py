"""Resharding plans: the cheapest moves from one tiling to another.

A search over mesh collectives (`search`) finds most plans. Where its plan takes more than some device must receive in
any case, because tiles change places along a chain of dimensions or begin at unrelated places, the alternative is to
send the missing pieces directly (`exchange.plan`). An exchange enumerates the devices that receive different pieces;
beyond small numbers of them it is used only where the search finds nothing. Costs are times on a machine
(`cost.machine`).

A value on one device is like a value that is unreduced over all devices and is the identity on all but one of them.
Tilings in different device orders, or on meshes without common refinement, have no digits in common: whole tiles change
places at the end that moves least. They may do so wherever the search finds no plan close to the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...cost.formulas import received
from ...cost.machine import DEFAULT, Machine
from ...ir.sharding.digit import Digit, Digits, complement, primes, product
from ...ir.sharding.mesh import LARGEST_LIST
from ...ir.sharding.tiling import Tiling
from .base.moves import AllGatherMove, AllReduceMove, Exchange, Mask, Move, Permute, ReduceScatterMove, ReshardPlan
from .base.tiles import bounds
from .exchange.pieces import lower_bound
from .exchange.plan import ExchangePlan, fewest_rounds, plan_exchange
from .exchange.quotient import quotient
from .search.search import ReshardProblem, detour, search

_MOST_DEVICES = 8192  # in an exchange of different pieces, if there is another plan
_LARGER = 1.5  # target tiles larger than source tiles by this factor are sent in parts
_MOST_ROUNDS = 16  # of an exchange, if there is another plan
_REDUCED = 2  # moves of a sum, none of which fewer moves by pieces beat
_MOST_PIECES = 1 << 22  # that an exchange may enumerate


_IMPOSSIBLE = ReshardPlan((), math.inf, math.inf, math.inf)


class NoPlan(Exception):
    """Raised if no plan stays within the memory limit."""


def with_manual(tiling: Tiling, manual: Digits) -> Tiling:
    """Turns manual digits into those of a leading dimension with one element per tile: a plan cannot move data along
    them.
    """
    return Tiling((manual, *tiling.dims), tiling.unreduced, tiling.order)


@lru_cache(maxsize=65536)
def plan_reshard(
    source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int, memory: float = math.inf, size: float = 4,
    machine: Machine = DEFAULT,
) -> ReshardPlan:
    """Finds the cheapest moves between two tilings of an array with these (global) dimensions, over this many devices.

    `size` is that of an element in bytes; `memory` the most elements that a device may hold of the array, before and
    after a move together. Raises NoPlan if that is too little. In a manual region the plan is for arrays with one more
    leading dimension (`with_manual`). The cost is infinite if there is no way: from one region into another, or along
    the digits of a region.
    """
    if source.manual and target.manual and source.manual != target.manual:
        return _IMPOSSIBLE
    if manual := target.manual or source.manual:
        source, target, dims = with_manual(source, manual), with_manual(target, manual), (product(manual), *dims)
    if source.canonical() == target.canonical():
        return _empty_plan(source, dims)
    if not source.is_consistent() or not target.is_consistent():
        return _IMPOSSIBLE
    if source.order != target.order and _has_same_tiles(source, target, dims, devices):
        return _empty_plan(source, dims)
    problem = ReshardProblem(dims, devices, size or 1, machine, memory)
    plan = _best(source, target, problem)
    if plan is None and not manual:  # last resort: an exchange would have millions of pieces, or exceed the memory
        plan = _best(source, target, replace(problem, may_replicate=True))
        plan = replace(plan, may_replicate=True) if plan is not None else None
    if plan is None:
        raise NoPlan(f"no plan stays within {memory:.0f} elements per device")
    return plan


def _has_same_tiles(source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int) -> bool:
    """Whether all devices hold the same tiles under both tilings, although their device orders differ."""
    if source.unreduced or target.unreduced or source.device is not None or target.device is not None:
        return False
    return np.array_equal(bounds(source, dims, devices), bounds(target, dims, devices))


def _best(source: Tiling, target: Tiling, problem: ReshardProblem) -> ReshardPlan | None:
    found = [plan for plan in _plans(source, target, problem) if plan.peak <= problem.memory]
    return min(found, key=lambda plan: plan.cost, default=None)


def _plans(source: Tiling, target: Tiling, problem: ReshardProblem) -> Iterator[ReshardPlan]:
    if source.device is not None or target.device is not None:
        yield from _single_device_plans(source, target, problem)
        return
    is_renumbered = source.order != target.order and not source.is_replicated and not target.is_replicated
    if is_renumbered:
        least, found = 0.0, _via_permute(source, target, problem, math.inf)
    else:
        outcome = search(source, target, problem)
        least, found = outcome.least, [outcome.plan] if outcome.plan else []
    is_least = _is_least(found, least, source, target, problem)
    if not is_least:
        found += _otherwise(source, target, problem, _least_cost(found, problem))
    yield from found
    if is_renumbered:
        return
    best = _least_cost(found, problem)
    if better := detour(source, target, problem, least, best):
        found = [better]
        if is_least and not _is_least(found, least, source, target, problem):
            found += _otherwise(source, target, problem, better.cost)
        yield from found
        best = _least_cost(found, problem)
    if best > problem.least_time(least):
        yield from _via_permute(source, target, problem, best)


def _otherwise(source: Tiling, target: Tiling, problem: ReshardProblem, best: float) -> Iterator[ReshardPlan]:
    """Yields plans of other moves than those of the search, some of which cost less than `best`."""
    yield from _by_pieces(source, target, problem, best)
    if target.unreduced:
        for plan in _plans(source, replace(target, unreduced=()), problem):
            yield _join(plan, _mask_plan(target, problem))


def _is_least(
    found: Sequence[ReshardPlan], least: float, source: Tiling, target: Tiling, problem: ReshardProblem
) -> bool:
    """Whether no plan of other moves receives less than one that is found. Pieces are sent after a reduction, in two
    moves at least.
    """
    is_sum = bool(source.unreduced)
    if any(plan.received <= least and (not is_sum or len(plan.moves) <= _REDUCED) for plan in found):
        return True
    if not found or is_sum or target.unreduced:
        return False
    return found[0].received <= lower_bound(source, target, problem.dims, problem.devices)


def _via_permute(source: Tiling, target: Tiling, problem: ReshardProblem, below: float) -> list[ReshardPlan]:
    """Returns plans that cost less than `below` and permute whole tiles first or last.

    Tiles are permuted first to the order of the target and perhaps its digits, or last from those of the source.
    """
    plans: list[ReshardPlan] = []
    for before in _renumbered(source, target, problem.devices) if not source.unreduced else ():
        first = _permute_plan(source, before, problem)
        plans += _joined(first, search(before, target, problem, below - first.cost).plan)
    for after in _renumbered(target, source, problem.devices) if not target.unreduced else ():
        last = _permute_plan(after, target, problem)
        plans += _joined(search(source, after, problem, below - last.cost).plan, last)
    return plans


def _renumbered(tiling: Tiling, other: Tiling, devices: int) -> list[Tiling]:
    """Returns tilings into the same tiles in the order of another tiling: by the same digits, and by digits of that
    tiling.
    """
    numbered = (replace(t, order=other.order) for t in (tiling, _on_digits_of(tiling, other, devices)))
    return [t for t in dict.fromkeys(numbered) if t != tiling]


def _on_digits_of(tiling: Tiling, other: Tiling, devices: int) -> Tiling:
    """Returns a tiling with as many tiles per dimension, numbered by digits of `other`, of the same dimension if
    possible.
    """
    rest = complement(devices, other.used())
    if rest is None:
        return tiling
    pools = [list(primes(digits)) for digits in (*other.dims, other.unreduced, rest)]
    dims: list[Digits] = []
    for dim, digits in enumerate(tiling.dims):
        dims.append(())
        for pool in (pools[dim], *pools[::-1]):
            for digit in tuple(pool):
                if product(digits) // product(dims[dim]) % digit.size == 0:
                    dims[dim] += (digit,)
                    pool.remove(digit)
    return replace(tiling, dims=tuple(dims)).canonical()


def _single_device_plans(source: Tiling, target: Tiling, problem: ReshardProblem) -> Iterator[ReshardPlan]:
    """Yields plans from or to a single device. The other devices run the same program, but their contents do not count.
    """
    if source.device is not None and target.device is not None:
        yield _permute_plan(source, target, problem)
    elif source.device is not None:
        all_devices = (Digit(problem.devices, 1),)
        start = _local_plan(Mask(all_devices, target.order, source.device), source, problem)
        # Digits of all devices fit any order: use that of the target, over which the moves run.
        partial = Tiling(((),) * len(target.dims), all_devices, target.order)
        if target.canonical() == partial.canonical():
            yield start
            return
        for plan in _plans(partial, target, problem):
            yield _join(start, plan)
    else:
        whole = Tiling.replicated(len(source.dims))
        yield from [_empty_plan(source, problem.dims)] if source.is_replicated else _plans(source, whole, problem)


# -- by pieces


def _by_pieces(source: Tiling, target: Tiling, problem: ReshardProblem, best: float) -> Iterator[ReshardPlan]:
    """Yields plans that reduce if necessary, then send the missing pieces. `best` is the cost of another plan.

    Once a plan stays within the memory, only plans of few rounds follow.
    """
    if target.unreduced:
        return
    most = _MOST_ROUNDS if best < math.inf else math.inf
    for middle, before in _reduced(source, problem):
        for move, after in _exchanges(middle, target, problem):
            held = math.prod(middle.local_dims(problem.dims)) + math.prod(move.local_dims(problem.dims))
            if before.cost + after.cost >= best or held > problem.memory:
                continue
            part = quotient(move, problem.dims, problem.devices)
            if part.devices > (_MOST_DEVICES if most < math.inf else LARGEST_LIST):
                continue
            if fewest_rounds(part) > min(most, _MOST_PIECES / part.devices):
                continue
            exchange = plan_exchange(part)
            if exchange.collectives > most:
                continue
            plan = _join(_join(before, _exchanged(move, exchange, problem)), after)
            if plan.peak <= problem.memory:
                most = _MOST_ROUNDS
            yield plan


def _exchanged(move: Exchange, exchange: ExchangePlan, problem: ReshardProblem) -> ReshardPlan:
    held = math.prod(move.source.local_dims(problem.dims)) + math.prod(move.local_dims(problem.dims))
    largest = max((math.prod(r.dims) for r in exchange.rounds), default=0)
    cost = sum(problem.time("collective-permute", r.elements) for r in exchange.rounds)
    return ReshardPlan((move,), float(exchange.received), cost, peak=float(held + largest))


def _reduced(source: Tiling, problem: ReshardProblem) -> Iterator[tuple[Tiling, ReshardPlan]]:
    """Yields tilings without unreduced digits and the plans to them: the whole sum of each tile on every device, or a
    part.
    """
    digits, dims = source.unreduced, problem.dims
    if not digits:
        yield source, _empty_plan(source, dims)
        return
    whole = replace(source, unreduced=())
    count, held = product(digits), math.prod(source.local_dims(dims))
    yield whole, _collective_plan(AllReduceMove(digits), held, digits, source.order, 2.0 * held, problem)
    for dim, n in enumerate(source.local_dims(dims)):
        if n % count == 0 and n:
            part = whole.with_dim(dim, (*source.dims[dim], *digits))
            move = ReduceScatterMove(dim, digits, n)
            yield part, _collective_plan(move, held, digits, source.order, held * (1 + 1 / count), problem)


def _exchanges(source: Tiling, target: Tiling, problem: ReshardProblem) -> Iterator[tuple[Exchange, ReshardPlan]]:
    """Yields the exchange for parts of large target tiles with the all-gathers after it, and the exchange for whole
    tiles.

    Devices that want the same tile receive a part each, of about the size that each sends.
    """
    dims, transfer = problem.dims, problem.machine.collective("collective-permute", None)
    latency = transfer.latency / (transfer.per_byte * problem.size)
    inner: list[Digits] = [()] * len(dims)
    have, tile = source.local_dims(dims), target.local_dims(dims)
    part = list(tile)
    for digit in _unused_digits(source, target, problem.devices):
        ratio, dim = max(((p / max(h, 1), d) for d, (h, p) in enumerate(zip(have, part, strict=True))), default=(0, 0))
        if ratio >= _LARGER:
            inner[dim] += (digit,)
            part[dim] = -(-tile[dim] // product(inner[dim]))
    if any(inner):
        gathers = ReshardPlan((), 0.0, 0.0)
        for dim, digits in enumerate(inner):
            if digits:
                held = math.prod(part)
                part[dim] = tile[dim]
                peak = float(held + math.prod(part))
                gather = AllGatherMove(dim, digits, tile[dim])
                gathered = held * product(digits)
                gathers = _join(gathers, _collective_plan(gather, gathered, digits, target.order, peak, problem))
        yield Exchange(source, target, tuple(inner), latency), gathers
    yield Exchange(source, target, ((),) * len(dims), latency), ReshardPlan((), 0.0, 0.0)


def _unused_digits(source: Tiling, target: Tiling, devices: int) -> list[Digit]:
    """Returns digits that the target does not use, those of the source first, so that parts stay where they are."""
    free = list(primes(complement(devices, target.used()) or ()))
    if source.order != target.order:
        return free
    first = [d for digits in source.dims for d in primes(digits) if d in free]
    return first + [d for d in free if d not in first]


# -- plans


def _empty_plan(tiling: Tiling, dims: tuple[int, ...]) -> ReshardPlan:
    return ReshardPlan((), 0.0, 0.0, peak=float(math.prod(tiling.local_dims(dims))))


def _mask_plan(target: Tiling, problem: ReshardProblem) -> ReshardPlan:
    """Returns the plan that makes a complete value in the target's tiles unreduced as the target is."""
    return _local_plan(Mask(target.unreduced, target.order), target, problem)


def _local_plan(move: Move, tiling: Tiling, problem: ReshardProblem) -> ReshardPlan:
    """Returns the plan of one move without communication that keeps the size of tiles."""
    return ReshardPlan((move,), 0.0, 0.0, peak=2 * _empty_plan(tiling, problem.dims).peak)


def _collective_plan(
    move: AllGatherMove | AllReduceMove | ReduceScatterMove,
    whole: float,
    digits: Digits,
    order: tuple[int, ...] | None,
    peak: float,
    problem: ReshardProblem,
) -> ReshardPlan:
    """Returns the plan of one collective over these digits, for an irregular device order if `order` is given."""
    arriving = received(move.kind, whole, product(digits))
    return ReshardPlan((move,), arriving, problem.time(move.kind, arriving, digits, order), peak=float(peak))


def _permute_plan(source: Tiling, target: Tiling, problem: ReshardProblem) -> ReshardPlan:
    held = float(math.prod(source.local_dims(problem.dims)))
    return ReshardPlan((Permute(source, target),), held, problem.time("collective-permute", held), peak=2 * held)


def _joined(first: ReshardPlan | None, second: ReshardPlan | None) -> list[ReshardPlan]:
    return [_join(first, second)] if first and second else []


def _least_cost(plans: Iterable[ReshardPlan], problem: ReshardProblem) -> float:
    """Returns the cost of the cheapest plan within the memory, infinity if there is none."""
    return min((plan.cost for plan in plans if plan.peak <= problem.memory), default=math.inf)


def _join(first: ReshardPlan, second: ReshardPlan) -> ReshardPlan:
    arriving, cost = first.received + second.received, first.cost + second.cost
    return ReshardPlan((*first.moves, *second.moves), arriving, cost, peak=max(first.peak, second.peak))
