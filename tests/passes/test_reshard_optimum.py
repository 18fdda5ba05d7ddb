"""The planner's bytes against the optimum, found by exhaustive search over all sequences of mesh collectives.

The planner does not try to divide further first, in order to permute less and gather again: it takes the fewest bytes
for most pairs and at most half more for the others, with fewer collectives. Sent in pieces, some pairs take less than
any sequence of mesh collectives.

The search here knows no direction: any digits may leave the minor end of any dimension, by all-gather or to the minor
end of any other dimension; any unused digit may slice any dimension; and whole tiles may go anywhere. It is feasible
for small meshes. Dimensions are divided evenly, since padding is a matter of the planner's alone.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import pytest
from hloom.ir.digit import Digit, Digits, cut, disjoint, product, refine
from hloom.ir.tiling import Tiling
from hloom.passes.spmd import reshard_plan
from hloom.passes.spmd.reshard_plan import plan_reshard

State = tuple[Digits, ...]
WORST, SHARE = 1.5, 0.85  # measured: 1.5, and from 0.87 to all


def _elements(state: State, dims: tuple[int, ...]) -> float:
    return math.prod(n / product(d) for n, d in zip(dims, state, strict=True))


def _moves(state: State, atoms: Digits, dims: tuple[int, ...]) -> Iterator[tuple[State, float]]:
    held = _elements(state, dims)
    used = [d for digits in state for d in digits]

    def put(*changes: tuple[int, Digits]) -> State:
        new = list(state)
        for dim, digits in changes:
            new[dim] = digits
        return tuple(new)

    for dim, atom in itertools.product(range(len(dims)), atoms):
        if disjoint((atom,), used) and dims[dim] % (product(state[dim]) * atom.size) == 0:
            yield put((dim, (*state[dim], atom))), 0.0
    for dim, digits in enumerate(state):
        for count in range(1, len(digits) + 1):
            rest, leaving = digits[:-count], digits[-count:]
            yield put((dim, rest)), held * (product(leaving) - 1)
            for other in range(len(dims)):
                new = (*state[other], *leaving)
                if other != dim and dims[other] % product(new) == 0:
                    yield put((dim, rest), (other, new)), held * (1 - 1 / product(leaving))
    sizes = [tuple(d.size for d in digits) for digits in state]
    for order in itertools.permutations(atoms, sum(map(len, sizes))):
        parts = iter(order)
        moved = tuple(tuple(next(parts) for _ in s) for s in sizes)
        if [tuple(d.size for d in digits) for digits in moved] == sizes and moved != state:
            yield moved, held


def optimum(source: Tiling, target: Tiling, atoms: Digits, dims: tuple[int, ...]) -> float:
    """The fewest elements that a device receives on any way."""
    cuts = refine([atoms])
    start, goal = (tuple(cut(d, cuts) for d in t.dims) for t in (source, target))
    best = {start: 0.0}
    queue: list[tuple[float, State]] = [(0.0, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if state == goal:
            return cost
        if cost > best[state]:
            continue
        for after, received in _moves(state, atoms, dims):
            if cost + received < best.get(after, math.inf):
                best[after] = cost + received
                heapq.heappush(queue, (cost + received, after))
    raise AssertionError("every tiling can be reached")


def _tilings(atoms: Digits, rank: int) -> list[Tiling]:
    found: dict[State, None] = {}
    for count in range(len(atoms) + 1):
        for chosen in itertools.permutations(atoms, count):
            for places in itertools.product(range(rank), repeat=count):
                dims: list[list[Digit]] = [[] for _ in range(rank)]
                for digit, place in zip(chosen, places, strict=True):
                    dims[place].append(digit)
                found[tuple(map(tuple, dims))] = None
    return [Tiling(dims).canonical() for dims in found]


@pytest.fixture
def _only_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reshard_plan, "LATENCY", 0.0)
    plan_reshard.cache_clear()
    yield
    plan_reshard.cache_clear()


def _compare(atoms: Digits, dims: tuple[int, ...]) -> None:
    devices = product(atoms)
    tilings = _tilings(atoms, len(dims))
    ratios: list[float] = []
    for source, target in itertools.product(tilings, tilings):
        received = plan_reshard(source, target, dims, devices).received
        least = optimum(source, target, atoms, dims)
        assert least or not received, f"{source} to {target} of {dims} needs no data"
        ratios.append(received / least if least else 1.0)
        assert ratios[-1] <= WORST + 1e-9, f"{source} to {target} of {dims}: {received}, optimum {least}"
    optimal = sum(r <= 1.0 + 1e-9 for r in ratios) / len(ratios)
    assert optimal >= SHARE, f"{optimal:.0%} of {len(ratios)} pairs"


@pytest.mark.usefixtures("_only_bytes")
@pytest.mark.parametrize(
    ("atoms", "dims"),
    [
        ((Digit(2, 2), Digit(2, 1)), (16,)),
        ((Digit(2, 2), Digit(2, 1)), (16, 8)),
        ((Digit(2, 3), Digit(3, 1)), (36, 6)),
    ],
)
def test_plans_are_near_the_optimum(atoms: Digits, dims: tuple[int, ...]) -> None:
    _compare(atoms, dims)


@pytest.mark.slow
@pytest.mark.usefixtures("_only_bytes")
@pytest.mark.parametrize("dims", [(64,), (16, 16), (8, 8, 8)])
def test_plans_are_near_the_optimum_on_eight_devices(dims: tuple[int, ...]) -> None:
    _compare((Digit(2, 4), Digit(2, 2), Digit(2, 1)), dims)
