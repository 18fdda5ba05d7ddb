"""Resharding between the shardings of small meshes: the right data arrives, and as many bytes as the plan says.

All meshes of up to eight devices in one to three dimensions, with permuted device orders and partial replication; the
ends may also be partial sums, or a value on one device. By default samples of ranks 1 to 3; with `-m slow` all pairs.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.cost.machine import DEFAULT, Machine
from hloom.cost.presets import parse_machine
from hloom.frontends import parse_sharding
from hloom.ir.diagnostics import InternalError
from hloom.ir.factors.sharding_rule import Monoid
from hloom.ir.graph.computation import Computation
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.sharding.digit import Digit, Digits, disjoint
from hloom.ir.sharding.sharding import Sharding
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.types.element_type import F32
from hloom.ir.types.shape import array
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.resharding.base.moves import AllGatherMove, Exchange, ReshardPlan, SliceMove
from hloom.passes.resharding.exchange.pieces import lower_bound
from hloom.passes.resharding.exchange.rounds import Messages, rounds_of
from hloom.passes.resharding.plan import NoPlan, plan_reshard
from hloom.passes.spmd.emit.channels import Channels
from hloom.passes.spmd.emit.emitter import Emitter
from hloom.passes.spmd.emit.moves import MoveEmitter
from support.calls import calls
from support.reshard_programs import check_all, program, random_tiling, tilings

REAL = parse_machine(links="1us/100GB")  # few collectives rather than few bytes, for arrays as small as here
MODELS = pytest.mark.parametrize("machine", [DEFAULT, REAL], ids=["bytes count", "latency counts"])


def _check_sample(devices: int, dims: tuple[int, ...], machine: Machine, sources: int, targets: int) -> None:
    """Random sources, each to random targets."""
    rng = random.Random(f"{devices} {dims}")
    every = tilings(devices, len(dims))
    for source in rng.sample(every, min(sources, len(every))):
        check_all(dims, source, rng.sample(every, min(targets, len(every))), devices, machine)


@pytest.mark.share(2)
@MODELS
@pytest.mark.parametrize("dims", [(24,), (11,)])
@pytest.mark.parametrize("devices", range(2, 9))
def test_pairs_of_rank_1(devices: int, dims: tuple[int, ...], machine: Machine) -> None:
    _check_sample(devices, dims, machine, 4, 8)


@pytest.mark.share(2)
@MODELS
@pytest.mark.parametrize(
    ("devices", "dims"),
    [(3, (4, 5)), (4, (4, 6)), (4, (5, 3)), (5, (5, 7)), (6, (6, 12)), (6, (5, 7)), (8, (8, 16)), (8, (9, 5))],
)
def test_pairs_of_rank_2(devices: int, dims: tuple[int, ...], machine: Machine) -> None:
    _check_sample(devices, dims, machine, 3, 6)


@pytest.mark.share(2)
@MODELS
@pytest.mark.parametrize(("devices", "dims"), [(4, (4, 4, 8)), (6, (6, 6, 3)), (8, (8, 8, 8)), (8, (4, 9, 6))])
def test_pairs_of_rank_3(devices: int, dims: tuple[int, ...], machine: Machine) -> None:
    _check_sample(devices, dims, machine, 3, 5)


@pytest.mark.slow
@MODELS
@pytest.mark.parametrize(
    ("devices", "dims"),
    [(n, dims) for n in range(2, 9) for dims in ((24,), (11,), (8, 12), (9, 5), (8, 8, 12), (5, 9, 7))],
)
def test_all_pairs(devices: int, dims: tuple[int, ...], machine: Machine) -> None:
    every = tilings(devices, len(dims))
    for source in every:
        for first in range(0, len(every), 50):
            check_all(dims, source, every[first : first + 50], devices, machine)


@pytest.mark.share(2)
@MODELS
@pytest.mark.parametrize("devices", [12, 16, 30, 48])
def test_pairs_on_larger_meshes(devices: int, machine: Machine) -> None:
    rng = random.Random(devices)
    for rank in (1, 2, 2, 3):
        dims = tuple(rng.choice([devices, devices // 2 + 1, 7, 2 * devices + 3]) for _ in range(rank))
        targets = [random_tiling(rng, devices, rank) for _ in range(6)]
        check_all(dims, random_tiling(rng, devices, rank), targets, devices, machine)


@pytest.mark.parametrize(
    ("devices", "times"),
    [(256, 10), (4096, 3), (16384, 10), *(pytest.param(n, 20, marks=pytest.mark.slow) for n in (256, 4096, 16384))],
)
def test_even_arrays_take_little_more_than_the_least_on_large_meshes(devices: int, times: int) -> None:
    """At most an exchange of whole tiles or an all-to-all more than what some device must receive."""
    rng = random.Random(devices)
    for rank in (1, 2, 3) * times:
        source, target = random_tiling(rng, devices, rank), random_tiling(rng, devices, rank)
        dims = (devices,) * rank
        plan = plan_reshard(source, target, dims, devices)
        assert plan.received <= 2.1 * lower_bound(source, target, dims, devices), f"{source} to {target} of {dims}"


@pytest.mark.parametrize("pairs", [4, pytest.param(25, marks=pytest.mark.slow)])
@MODELS
def test_plans_state_the_bytes_that_programs_move(machine: Machine, pairs: int) -> None:
    """The elements of a plan, counted on the collectives of the program."""
    rng = random.Random(0)
    for devices, dims in ((8, (16, 8)), (6, (12, 6, 6)), (8, (9, 5))):
        every = tilings(devices, len(dims))
        for source, target in zip(rng.choices(every, k=pairs), rng.choices(every, k=pairs), strict=True):
            plan = plan_reshard(source, target, dims, devices, size=4, machine=machine)
            found = hloom.collectives(program(dims, source, [target], devices, machine))
            assert sum(c.wire_bytes for c in found) == pytest.approx(plan.received * 4, abs=4), f"{source} to {target}"


@pytest.mark.parametrize(("dims", "most"), [((50, 77), 1.65), ((50, 77, 91), 1.65), ((64, 64, 64), 1.0)])
def test_rounds_of_pieces_are_padded_little(dims: tuple[int, ...], most: float) -> None:
    """What uneven arrays take above the least, and the largest arrays on a device beside the larger of its tiles."""
    rng = random.Random(0)
    every = tilings(8, len(dims))
    exchanges = 0
    for source, target in zip(rng.choices(every, k=30), rng.choices(every, k=30), strict=True):
        plan = plan_reshard(source, target, dims, 8)
        if any(isinstance(move, Exchange) for move in plan.moves):
            exchanges += 1
            assert plan.received <= most * lower_bound(source, target, dims, 8), f"{source} to {target}"
            arrays = [i.shape for c in program(dims, source, [target], 8) for i in c if i.shape.is_array]
            tile = max(source.local_shape(array(F32, dims)).byte_size, target.local_shape(array(F32, dims)).byte_size)
            assert max(s.byte_size for s in arrays) <= (tile if most == 1.0 else 2.1 * tile), f"{source} to {target}"
    assert exchanges > 5


def test_small_pieces_have_rounds_of_their_own() -> None:
    """Three rounds of large pieces and four of small ones from one device, not seven of large ones."""
    large = [(s, r) for s in range(4) for r in range(4) if s != r]
    small = [(3, r) for r in range(4, 8)]
    senders, receivers = zip(*large, *small, strict=True)
    sizes = [(12, 20)] * len(large) + [(2, 20)] * len(small)
    found = rounds_of(Messages(senders, receivers, sizes, 0.25))
    assert sorted(itertools.chain.from_iterable(found)) == list(range(16))
    for pieces in found:
        assert len({senders[p] for p in pieces}) == len({receivers[p] for p in pieces}) == len(pieces)
    assert sum(max(sizes[p][0] for p in pieces) for pieces in found) == 3 * 12 + 4 * 2
    few = rounds_of(Messages(senders, receivers, sizes, 1e6))
    assert len(few) == 7


def test_pieces_swap_rounds_where_a_larger_one_makes_room() -> None:
    """Rounds with devices in common cost less once their largest pieces are together. No others are cheaper."""
    senders, receivers, sizes = (1, 2, 1, 0, 2), (5, 4, 3, 3, 5), [(1, 1), (1, 3), (3, 3), (3, 2), (4, 2)]
    found = rounds_of(Messages(senders, receivers, sizes, 0.5))
    assert sorted(sorted(pieces) for pieces in found) == [[0], [1, 2], [3, 4]]


def _with_unreduced(every: list[Tiling], digits: Digits) -> list[Tiling]:
    """These tilings, unreduced over the digits, where they do not use them."""
    return [replace(t, unreduced=digits) for t in every if t.order is None and disjoint(t.used(), digits)]


HIGH, MIDDLE, LOW = (Digit(2, 4),), (Digit(2, 2),), (Digit(2, 1),)


@pytest.mark.share(3)
@MODELS
@pytest.mark.parametrize("dims", [(8, 4), (5, 3)])
@pytest.mark.parametrize("digits", [HIGH, LOW, (*HIGH, *LOW), (*HIGH, *MIDDLE, *LOW)])
def test_sums_are_made_where_they_are_wanted(digits: Digits, dims: tuple[int, ...], machine: Machine) -> None:
    every = tilings(8, 2)
    rng = random.Random(str(digits))
    for source in rng.sample(partial := _with_unreduced(every, digits), min(3, len(partial))):
        check_all(dims, source, rng.sample(every, 6), 8, machine)


@pytest.mark.parametrize("dims", [(8, 4), (5, 3)])
def test_values_become_and_stay_partial_sums(dims: tuple[int, ...]) -> None:
    every = [t for t in tilings(8, 2) if t.order is None]
    rng = random.Random(0)
    for before, after in itertools.product([(), LOW, (*HIGH, *LOW)], [LOW, HIGH, (*MIDDLE, *LOW)]):
        sources, targets = _with_unreduced(every, before), _with_unreduced(every, after)
        check_all(dims, rng.choice(sources), rng.sample(targets, min(5, len(targets))), 8)


def test_a_partial_sum_is_of_the_devices_in_its_own_order() -> None:
    """Tiles of an irregular order are gathered, then one device of each of the target's groups keeps the value."""
    order = (6, 5, 0, 2, 1, 3, 4, 7)
    for rows in (LOW, HIGH, (*HIGH, *LOW)):
        source = Tiling((rows, ()), order=order)
        check_all((8, 4), source, [Tiling(((), ()), LOW), Tiling(((), ()), MIDDLE), Tiling(((), LOW), HIGH)], 8)
        check_all((8, 4), Tiling((rows, ())), [Tiling(((), ()), LOW, order), Tiling(((), LOW), HIGH, order)], 8)


def test_a_value_among_identities_counts_twice() -> None:
    """Before and after one device alone keeps it, which other devices do in the same program."""
    assert plan_reshard(Tiling(((), ()), device=3), Tiling((LOW, ())), (8, 4), 8).peak >= 2 * 8 * 4


def test_partial_sums_that_stay_move_nothing() -> None:
    partial = Tiling(((), ()), (Digit(8, 1),))
    assert plan_reshard(partial, partial, (8, 4), 8).moves == ()
    for source in (Tiling.replicated(2), Tiling(((Digit(8, 1),), ()))):
        assert plan_reshard(source, partial, (8, 4), 8).received == 0


def test_a_value_from_one_device_and_to_one() -> None:
    every = tilings(8, 2)
    rng = random.Random(0)
    for owner in (0, 5):
        alone = Tiling(((), ()), device=owner)
        check_all((9, 5), alone, [*rng.sample(every, 8), Tiling(((), ()), device=6), Tiling(((), ()), HIGH)], 8)
        for source in rng.sample(every, 8):
            check_all((9, 5), source, [alone], 8)


def test_orders_that_differ_by_name_only_move_nothing() -> None:
    source, target = Tiling(((Digit(6, 1),),), order=(0, 2, 4, 1, 3, 5)), Tiling(((Digit(2, 1), Digit(3, 2)),))
    assert plan_reshard(source, target, (35,), 6).received == 0
    check_all((35,), source, [target], 6)


def test_a_value_on_one_device_is_a_sum_over_all_without_communication() -> None:
    source, target = Tiling(((),), device=2), Tiling(((),), (Digit(4, 1),))
    assert plan_reshard(source, target, (8,), 4).received == 0
    check_all((8,), source, [target], 4)


def test_memory_limits_that_exclude_the_ends_are_refused_at_once() -> None:
    """Without a look at the 268 million pieces of the exchange."""
    source = Tiling(((Digit(4, 4096),), (Digit(4096, 1),)))
    for memory in (77_020, 77_070):
        with pytest.raises(NoPlan):
            plan_reshard(source, Tiling.replicated(2), (77, 1000), 16384, memory)


def test_a_value_from_one_device_keeps_its_bits() -> None:
    value = np.array([-0.0, np.inf, -1e-45, 3.5], np.float32)
    alone, whole = Tiling(((),), device=3), Tiling(((),))
    held = np.full((8, 4), np.nan, np.float32)
    held[3] = value
    found = hloom.simulate(program((4,), alone, [whole], 8), [held])[0]
    assert found.tobytes() == np.tile(value, (8, 1)).tobytes()


@pytest.mark.parametrize("dims", [(7,), (4, 6)])
def test_entry_arguments_and_results(dims: tuple[int, ...]) -> None:
    """The same plans serve a whole program: between what callers give and take, and what its ops want."""
    value = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    shape = f"f32[{','.join(map(str, dims))}]"
    rest = ",1" * (len(dims) - 1)
    sharded = [f"{{devices=[4{rest}]<=[4]}}", f"{{devices=[4{rest}]0,3,1,2}}", "{replicated}",
               f"{{devices=[2{rest},2]<=[4] last_tile_dim_replicate}}"]
    for source, target in itertools.product(sharded, sharded):
        module = hloom.parse(f"HloModule m, num_partitions=4\nENTRY e {{\n  x = {shape} parameter(0), "
                             f"sharding={source}\n  ROOT y = {shape} negate(x), sharding={target}\n}}\n")
        local = hloom.partition(module)
        np.testing.assert_array_equal(hloom.simulate(local, [value], poison=True)[0], -value)


def test_a_reshard_for_several_users_is_made_once() -> None:
    module = hloom.parse("""HloModule m, num_partitions=8
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}
  w = f32[64,64] parameter(1), sharding={devices=[1,8]<=[8]}
  a = f32[64,64] add(x, w), sharding={devices=[1,8]<=[8]}
  b = f32[64,64] multiply(x, w), sharding={devices=[1,8]<=[8]}
  ROOT t = (f32[64,64], f32[64,64]) tuple(a, b), sharding={{devices=[1,8]<=[8]}, {devices=[1,8]<=[8]}}
}
""")
    assert [c.kind for c in hloom.collectives(hloom.partition(module))] == ["all-to-all"]


def test_a_plan_that_replicates_on_the_way_is_not_emitted() -> None:
    """A plan that gathers everything and slices."""
    everyone = (Digit(8, 1),)
    plan = ReshardPlan((AllGatherMove(0, everyone, 16), SliceMove(1, everyone, 8)), 112.0, 112.0)
    entry = Computation("e")
    tile = entry.add("parameter", (), ParameterAttributes(0), array(F32, (2, 8)), "x")
    moves = MoveEmitter(Emitter(entry, None), Channels(8), array(F32, (16, 8)), Monoid.ADD, None, {})
    with pytest.raises(InternalError, match="replicated on the way"):
        moves.emit(tile, plan)
    assert moves.emit(tile, replace(plan, may_replicate=True)).shape.dims == (16, 1)


def test_all_plans_are_made_for_the_machine_of_the_context() -> None:
    module = hloom.parse("""HloModule m, num_partitions=8
ENTRY e {
  x = c64[64,64] parameter(0), sharding={devices=[8,1]<=[8]}
  f = c64[64,64] fft(x), fft_type=FFT, fft_length={64,64}, sharding={devices=[8,1]<=[8]}
  r = f32[64,64] real(f)
  ROOT y = f32[64,64] transpose(r), dimensions={1,0}, sharding={devices=[8,1]<=[8]}
}
""")
    plan_reshard.cache_clear()
    with calls(plan_reshard) as made:
        run_pipeline(parse_pipeline("propagate,spmd-partition"), module, PassContext(machine=REAL))
    assert {call["machine"] for call in made} == {REAL}


def test_shardings_of_the_tests_are_valid() -> None:
    """The meshes of the tests have all the kinds: permuted and irregular orders, partial replication."""
    every = tilings(8, 3)
    assert len(every) > 100
    assert any(t.order for t in every)
    sharding = parse_sharding("{devices=[2,1,4]<=[4,2]T(1,0)}")
    assert isinstance(sharding, Sharding)
    assert sharding.tiling(3) in every


def test_tiles_of_one_element_are_whole() -> None:
    """Of a dimension of one element in two tiles half of the devices have all: gathering the rest replicates."""
    rows, single, other = (Digit(2, 2),), (Digit(2, 4),), (Digit(2, 1),)
    source = Tiling(((), (), rows, single))
    target = Tiling(((), (), single, ()))
    assert plan_reshard(source, target, (3, 6, 4, 1), 8).peak <= 72
    partial = Tiling(((), (), rows, single), other)
    assert plan_reshard(target, partial, (3, 6, 4, 1), 8).received <= 36
