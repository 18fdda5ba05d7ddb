"""The planner's costs against the optimum, found by exhaustive search over all sequences of mesh collectives.

The search here knows no direction: any digits may leave the minor end of any dimension, by all-gather or, several at
once, to the minor ends of other dimensions; any unused digit may slice any dimension, padded for any number of tiles;
and whole tiles may go anywhere. As in plans, nothing is replicated that neither end replicates. It is feasible for
small meshes. Pieces sent directly take less than any sequence of mesh collectives for some pairs.

No plan of these tests is above the optimum: sizes that devices divide or not, or smaller than they are; bytes alone,
latencies, or links that differ.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from hloom.cost.links import Link, Links, parse_links
from hloom.cost.machine import DEFAULT, Cluster, Machine
from hloom.cost.presets import PRESETS, parse_machine
from hloom.ir.sharding.digit import Digit, Digits, cut, disjoint, merge, product, refine
from hloom.ir.sharding.tiling import Tiling
from hloom.passes.resharding.exchange.pieces import lower_bound
from hloom.passes.resharding.plan import plan_reshard
from hloom.passes.resharding.search.bound import DeviceBound, bound
from hloom.passes.resharding.search.search import ReshardProblem, search, space_of
from hloom.passes.resharding.search.state import TilingState, state_of
from support.reshard_programs import random_tiling

Meshes = tuple[Digits, ...]  # by their smallest digits
BYTES = Cluster(Links(((1, Link(latency=0.0)),)))


def _arrivals(state: TilingState, dim: int, digits: Digits, problem: ReshardProblem) -> Iterator[TilingState]:
    """The states with further digits on a dimension; one that was whole may be padded for any number of tiles."""
    size = problem.dims[dim]
    padded = {n * -(-size // n) for n in range(1, problem.devices + 1) if problem.devices % n == 0}
    for choice in (state.padded[dim],) if state.dims[dim] else padded:
        if (after := state.arrive(dim, digits, choice)) is not None:
            yield after


def _shifts(
    state: TilingState, problem: ReshardProblem, sources: frozenset[int], targets: frozenset[int], moved: Digits
) -> Iterator[tuple[TilingState, frozenset[int], Digits]]:
    """The states after one all-to-all, the dimensions that it divides, and the digits that it is over."""
    for dim, other in itertools.permutations(range(len(problem.dims)), 2):
        if dim in targets or other in sources:
            continue
        for count in range(1, len(state.dims[dim]) + 1):
            leaving = state.dims[dim][-count:]
            for after in _arrivals(state.leave(dim, count, problem.dims[dim]), other, leaving, problem):
                yield after, targets | {other}, moved + leaving
                yield from _shifts(after, problem, sources | {dim}, targets | {other}, moved + leaving)


def _moves(state: TilingState, meshes: Meshes, problem: ReshardProblem) -> Iterator[tuple[TilingState, float, Digits]]:
    """The states after one move, the elements received, and the digits of the collective."""
    atoms = dict.fromkeys(itertools.chain(*meshes))
    held = state.elements()
    used = [d for digits in state.dims for d in digits]
    for dim, digits in enumerate(state.dims):
        for atom in atoms:
            if disjoint((atom,), used):
                for after in _arrivals(state, dim, (atom,), problem):
                    yield after, 0.0, ()
        for count in range(1, len(digits) + 1):
            leaving = digits[-count:]
            yield state.leave(dim, count, problem.dims[dim]), held * (product(leaving) - 1.0), leaving
    for after, divided, moved in _shifts(state, problem, frozenset(), frozenset(), ()):
        buffer = math.prod(
            after.padded[dim] // product(digits) if dim in divided else state.tile[dim]
            for dim, digits in enumerate(state.dims)
        )
        yield after, buffer * (1 - 1 / product(moved)), moved
    for dims in _numberings(meshes, tuple(product(digits) for digits in state.dims)):
        if dims != state.dims:
            changed = tuple({d for digits in (*state.dims, *dims) for d in digits})
            yield state.with_dims(dims), float(held), changed


@cache
def _numberings(meshes: Meshes, counts: tuple[int, ...]) -> list[tuple[Digits, ...]]:
    """All ways to number so many tiles per dimension."""
    return [t.dims for t in _tilings(meshes, len(counts)) if tuple(map(product, t.dims)) == counts]


def _merged(state: TilingState) -> TilingState:
    return state.with_dims(tuple(map(merge, state.dims)))


def _named(state: TilingState, meshes: Meshes) -> Iterator[TilingState]:
    """The same state by the digits of each mesh: 6@1 is 2@3 3@1 and 3@2 2@1."""
    ways = [{cut(digits, refine([atoms])) for atoms in meshes} for digits in state.dims]
    return map(state.with_dims, itertools.product(*ways))


def optima(source: Tiling, meshes: Meshes, problem: ReshardProblem, *, replicate: bool) -> dict[TilingState, float]:
    """The least cost of any way to every state, its digits merged; ways may replicate the array or not."""
    start = state_of(source, problem.dims, frozenset())
    most = math.inf if replicate else math.prod(problem.dims) - 1
    best = {start: 0.0}
    queue: list[tuple[float, int, TilingState]] = [(0.0, 0, start)]
    pushed = itertools.count(1)
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        named = _named(state, meshes)
        for after, received, digits in itertools.chain(*(_moves(s, meshes, problem) for s in named)):
            after = _merged(after)
            total = cost + problem.time("all-to-all", received, digits)
            if after.elements() <= most and total < best.get(after, math.inf):
                best[after] = total
                heapq.heappush(queue, (total, next(pushed), after))
    return best


def _tilings(meshes: Meshes, rank: int) -> list[Tiling]:
    found: dict[Tiling, None] = {}
    for atoms in meshes:
        for count in range(len(atoms) + 1):
            for chosen in itertools.permutations(atoms, count):
                for places in itertools.product(range(rank), repeat=count):
                    dims: list[list[Digit]] = [[] for _ in range(rank)]
                    for digit, place in zip(chosen, places, strict=True):
                        dims[place].append(digit)
                    found[Tiling(tuple(map(tuple, dims))).canonical()] = None
    return list(found)


def ratios(meshes: Meshes, dims: tuple[int, ...], machine: Machine) -> Iterator[tuple[float, str]]:
    """Of all pairs: the plan's cost over the optimum, and the pair."""
    problem = ReshardProblem(dims, product(meshes[0]), 4, machine, math.inf)
    tilings = _tilings(meshes, len(dims))
    whole = math.prod(dims)
    for source in tilings:
        best = {replicate: optima(source, meshes, problem, replicate=replicate) for replicate in (False, True)}
        for target in tilings:
            plan = plan_reshard(source, target, dims, problem.devices, machine=machine)
            goal = state_of(target, dims, frozenset())
            ends = (math.prod(end.local_dims(dims)) for end in (source, target))
            least = best[max(*ends) >= whole].get(goal, math.inf)
            words = f"{source} to {target} of {dims}: {plan.cost}, optimum {least}"
            below = max(bound(*space_of(source, target, problem)), lower_bound(source, target, dims, problem.devices))
            assert below <= plan.received, f"{words}, bound {below}"
            yield plan.cost / least if least else 1.0 + plan.cost, words


def _check(meshes: Meshes, dims: tuple[int, ...], machine: Machine) -> None:
    above = max(ratios(meshes, dims, machine))
    assert above[0] <= 1 + 1e-9, above


FAR_SLOW = parse_machine(links="1us/100GB;2:5us/25GB")
NEAR_SLOW = Cluster(Links(((1, Link(5e-6, 25e9)), (2, Link(1e-6, 100e9)))))
FOUR, SIX = ((Digit(2, 2), Digit(2, 1)),), ((Digit(2, 3), Digit(3, 1)),)
BOTH_SIX = (*SIX, (Digit(3, 2), Digit(2, 1)))
EIGHT = ((Digit(2, 4), Digit(2, 2), Digit(2, 1)),)
NODES = replace(PRESETS["h100"], links=parse_links("25us/368GB;2:150us/50GB"))  # nodes of two
NAMED = {machine.links: name for name, machine in PRESETS.items()}  # plans depend on links alone
MACHINES = {
    "bandwidth only": BYTES, "default": DEFAULT, "far slow": FAR_SLOW, "near slow": NEAR_SLOW,
    **{name: PRESETS[name] for name in NAMED.values()}, "nodes of two": NODES,
}  # fmt: skip
LINKS = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def _in_turn(*sizes: tuple[Meshes, tuple[int, ...]]) -> pytest.MarkDecorator:
    """Parametrizes a test by sizes and machines: one machine in six per size by default, all in the slow run."""
    pairs = itertools.product(enumerate(sizes), enumerate(MACHINES.items()))
    return pytest.mark.parametrize(("meshes", "dims", "machine"), [
        pytest.param(*size, machine, id=f"{size[1]} on {product(size[0][0])}, {name}",
                     marks=[pytest.mark.slow] if (row + column) % 6 else [])
        for (row, size), (column, (name, machine)) in pairs
    ])  # fmt: skip


@pytest.mark.share(2)
@_in_turn((FOUR, (256,)), (FOUR, (256, 64)), (BOTH_SIX, (216, 72)), (EIGHT, (512,)))
def test_even_plans_take_no_more_than_the_optimum(meshes: Meshes, dims: tuple[int, ...], machine: Machine) -> None:
    _check(meshes, dims, machine)


@pytest.mark.share(3)
@_in_turn((FOUR, (3,)), (FOUR, (50, 7)), (FOUR, (1, 9)), (SIX, (50, 77)), (SIX, (4, 100)), (EIGHT, (77,)))
def test_uneven_plans_take_no_more_than_the_optimum(meshes: Meshes, dims: tuple[int, ...], machine: Machine) -> None:
    _check(meshes, dims, machine)


@pytest.mark.slow
@LINKS
@pytest.mark.parametrize(
    ("meshes", "dims"),
    [
        *((FOUR, dims) for dims in [(3, 64), (5, 5), (6, 10), (2, 3, 5), (7, 1, 3), (32, 64, 16)]),
        *((SIX, dims) for dims in [(2, 5, 3), (36, 12, 6)]),
        *((BOTH_SIX, dims) for dims in [(9, 4), (5, 7), (1, 100), (50, 77), (72, 36)]),
        *((EIGHT, dims) for dims in [(5,), (50, 77), (3, 50), (9, 10), (6, 5), (128, 128)]),
    ],
)
def test_plans_of_more_sizes_take_no_more_than_the_optimum(
    meshes: Meshes, dims: tuple[int, ...], machine: Machine
) -> None:
    _check(meshes, dims, machine)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(64, 32, 32), (5, 6, 7)])
def test_plans_of_three_dimensions_on_eight_devices_take_no_more_than_the_optimum(dims: tuple[int, ...]) -> None:
    _check(EIGHT, dims, BYTES)


def test_paddings_that_no_digits_need_leave_room_for_useful_all_to_alls() -> None:
    """An all-to-all to two dimensions and an all-gather take 10 + 6 elements, all other ways at least 18."""
    source, target = Tiling(((), (), (Digit(6, 1),))), Tiling(((), (Digit(3, 1),), ()))
    plan = plan_reshard(source, target, (2, 5, 3), 6, machine=BYTES)
    assert [type(m).__name__ for m in plan.moves] == ["AllToAllMove", "AllGatherMove"]
    assert plan.received == 10 + 6


@pytest.mark.parametrize("unreduced", [(Digit(2, 4),), (Digit(4, 1),), (Digit(8, 1),)])
def test_sums_take_what_is_known_to_be_least(unreduced: Digits) -> None:
    """Two (n-1)/n of the array for an all-reduce, (n-1)/n for a reduce-scatter."""
    dims, count = (64, 64), product(unreduced)
    source = Tiling(((), ()), unreduced)
    for target, share in ((Tiling.replicated(2), 2.0), (Tiling((unreduced, ())), 1.0), (Tiling(((), unreduced)), 1.0)):
        plan = plan_reshard(source, target, dims, 8, machine=BYTES)
        assert plan.received == pytest.approx(share * 64 * 64 * (1 - 1 / count))
        assert bound(*space_of(source, target, ReshardProblem(dims, 8, 4, BYTES, math.inf))) <= plan.received


@pytest.mark.parametrize("dims", [(50,), (5, 7), (9, 64, 3)])
def test_the_bound_of_devices_is_what_some_device_lacks(dims: tuple[int, ...]) -> None:
    rng = random.Random(str(dims))
    for devices in (6, 8, 12):
        for _ in range(50):
            source, target = (Tiling(random_tiling(rng, devices, len(dims)).dims) for _ in range(2))
            start, space = space_of(source, target, ReshardProblem(dims, devices, 4, DEFAULT, math.inf))
            assert DeviceBound(space)(start) == lower_bound(source, target, dims, devices)


def test_the_bound_prunes_and_changes_no_plan() -> None:
    tilings = _tilings(EIGHT, 2)[::5]
    problem = ReshardProblem((64, 64), 8, 4, DEFAULT, math.inf)
    pairs = list(itertools.product(tilings, tilings))
    guided = [search(s, t, problem) for s, t in pairs]

    def nothing(_state: TilingState, space: object) -> float:
        return 0.0

    blind = [search(s, t, problem, estimate=nothing) for s, t in pairs]
    for one, other in zip(guided, blind, strict=True):
        assert (one.plan is None) == (other.plan is None)
        assert one.plan is None or other.plan is None or one.plan.cost == pytest.approx(other.plan.cost)
    assert sum(f.looked_at for f in guided) < 0.5 * sum(f.looked_at for f in blind)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (16, 8, 8), (32, 16, 32), (3, 5, 7), (7, 48, 48)])
def test_searches_are_as_small_for_many_devices(sizes: tuple[int, int, int]) -> None:
    """States looked at, for three axes over 8 to 16,384 devices: planning takes milliseconds."""
    x, y, z = sizes
    a, b, c = Digit(x, y * z), Digit(y, z), Digit(z, 1)
    n = x * y * z
    ends = [((a,), (b,), (c,)), ((a, b, c), (), ()), ((), (c, b), (a,)), ((c,), (a,), ()), ((b,), (), (a,))]
    for source, target in itertools.permutations(ends, 2):
        found = search(Tiling(source), Tiling(target), ReshardProblem((4 * n, 4 * n, 4 * n), n, 4, DEFAULT, math.inf))
        assert found.plan is not None
        assert found.looked_at < 300


def test_links_decide_between_bytes_and_collectives() -> None:
    """A chain of axes along three dimensions: pieces take the fewest bytes, two all-to-alls the fewest collectives."""
    x, y = Digit(4, 4), Digit(4, 1)
    source, target = Tiling(((x,), (y,), ())), Tiling(((), (x,), (y,)))
    small, large = (16, 16, 16), (512, 512, 512)
    real = parse_machine(links="1us/100GB")
    moves = [len(plan_reshard(source, target, dims, 16, machine=real).moves) for dims in (small, large)]
    assert moves == [2, 1]
    received = [plan_reshard(source, target, small, 16, machine=machine).received for machine in (DEFAULT, real)]
    assert received[0] < received[1]


def test_a_way_over_the_slow_links_once() -> None:
    """Each byte crosses the slow axis once, in a permute after the all-to-all, not in a gather of four."""
    x, y = Digit(2, 4), Digit(4, 1)
    machine = Cluster(Links(((1, Link(5e-6, 25e9)), (4, Link(1e-6, 100e9)))))
    plan = plan_reshard(Tiling(((x,), (y,), ())), Tiling(((), (x, y), ())), (32, 32, 32), 8, machine=machine)
    assert [type(m).__name__ for m in plan.moves] == ["AllToAllMove", "Permute"]
    assert plan.received == 2048 + 4096


def test_slow_axes_are_avoided() -> None:
    """Of two free digits, the sum is scattered over near links first, so that less crosses the far ones."""
    near, far = Digit(4, 1), Digit(4, 4)
    machine = parse_machine(links="1us/400GB;4:10us/10GB")
    source = Tiling(((),), (far, near))
    plan = plan_reshard(source, Tiling(((near,),)), (1 << 20,), 16, machine=machine)
    assert [type(m).__name__ for m in plan.moves] == ["ReduceScatterMove", "AllReduceMove"]
