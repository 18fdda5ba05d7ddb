"""Exchanges on larger meshes: groups of devices that do the same, many pieces at once, and what planning costs."""

from __future__ import annotations

import random
import time

import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.tiling import Tiling
from hloom.passes.resharding.base.moves import Exchange
from hloom.passes.resharding.exchange.pieces import lower_bound
from hloom.passes.resharding.exchange.plan import fewest_rounds, plan_exchange
from hloom.passes.resharding.exchange.quotient import quotient
from hloom.passes.resharding.plan import plan_reshard
from hloom.passes.spmd.emit.channels import Channels
from hloom.passes.spmd.emit.emitter import Emitter, LocalValue
from hloom.passes.spmd.emit.exchange import emit_exchange
from support.reshard_programs import check_all, tilings


def _move(source: Tiling, target: Tiling) -> Exchange:
    return Exchange(source, target, ((),) * len(source.dims), 0.25)


def _striped(emitter: Emitter, channels: Channels, value: LocalValue, target: Tiling) -> Instruction:
    """Exchanges few pieces as if they were many."""
    part = quotient(_move(value.tiling, target), value.shape.dims, channels.devices)
    return emit_exchange(emitter, value.instruction, plan_exchange(part, few=0, most=0), channels, {})


@pytest.mark.share(2)
@pytest.mark.parametrize(("devices", "dims"), [(6, (11,)), (6, (6, 12)), (8, (9, 5)), (8, (5, 9, 7))])
def test_striped_pieces_arrive(devices: int, dims: tuple[int, ...]) -> None:
    rng = random.Random(str(dims))
    every = tilings(devices, len(dims))
    for source in rng.sample(every, 6):
        targets = [t for t in every if t.order == source.order]
        check_all(dims, source, rng.sample(targets, min(10, len(targets))), devices, move=_striped)


# Ends of a dimension over some of six devices, and of others that stay as they are, over the rest of 24.
Ends = tuple[tuple[Digit, ...], ...]
SIX: list[Ends] = [((Digit(2, 3),), (Digit(3, 1),)), ((Digit(3, 2),), (Digit(2, 1),)), ((Digit(2, 3), Digit(3, 1)), ())]
UNEVEN: tuple[Ends, Ends] = (((Digit(2, 3),), ()), ((Digit(3, 1),), ()))


@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize(("source", "target"), [(SIX[0], SIX[1]), (SIX[1], SIX[2]), UNEVEN])
def test_devices_that_do_the_same_are_planned_once(source: Ends, target: Ends, stride: int) -> None:
    """Four groups of six devices, side by side or interleaved, tell apart a third dimension or nothing."""
    def spread(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
        return tuple(Digit(d.size, d.stride * stride) for d in digits)

    before, after = (tuple(map(spread, end)) for end in (source, target))
    outer = (Digit(4, 6 if stride == 1 else 1),)
    dims = (12, 10)
    alone = plan_exchange(quotient(_move(Tiling(source), Tiling(target)), dims, 6))
    for third in ((), outer):
        ends = Tiling((*before, third)), Tiling((*after, third))
        part = quotient(_move(*ends), (*dims, 5), 24)
        assert part.devices == alone.part.devices <= 6
        assert plan_exchange(part).received == alone.received * (2 if third else 5)
        check_all((*dims, 5), ends[0], [ends[1]], 24)


def test_a_prefix_that_stays_divides_the_exchange() -> None:
    """Both ends first divide by the same digit: 16 in 2 x 4 and in 2 x 3 tiles of other sizes, 24 in alike halves."""
    half, four, three = Digit(2, 12), Digit(4, 1), Digit(3, 4)
    move = _move(Tiling(((half, four),)), Tiling(((half, three),)))
    assert quotient(move, (24,), 24).devices == 12
    assert quotient(move, (16,), 24).devices == 24
    for size in (24, 16, 5):
        check_all((size,), move.source, [move.target], 24)


@pytest.mark.parametrize(("tiles", "parts", "size"), [(64, 48, 1000), (256, 16, 5001), (4096, 4096, 4100)])
def test_many_pieces_take_few_rounds(tiles: int, parts: int, size: int) -> None:
    """Of 12,288 devices; padded to the largest of their round, a device receives up to 2.3 times what it must."""
    devices = 12288
    source, target = Tiling(((Digit(tiles, devices // tiles),),)), Tiling(((Digit(parts, 1),),))
    part = quotient(_move(source, target), (size,), devices)
    plan = plan_exchange(part)
    fewest = fewest_rounds(part)
    assert fewest <= plan.collectives <= 2 * fewest + 2
    assert plan.received <= 2.3 * lower_bound(source, target, (size,), devices)
    for step in plan.rounds:
        for ends in (step.pieces.sender, step.pieces.receiver):
            assert len(set(ends.tolist())) == len(ends)


def test_more_pieces_take_as_few_rounds_as_the_busiest_device_has() -> None:
    """Tiles of 417 rows in 12 x 4 parts become 48 of 105 rows: each is made of up to eight pieces."""
    source, target, dims = Tiling(((Digit(12, 1),), (Digit(4, 12),))), Tiling(((Digit(48, 1),), ())), (5001, 50)
    part = quotient(_move(source, target), dims, 48)
    assert plan_exchange(part).collectives == fewest_rounds(part) == 8
    assert plan_reshard(source, target, dims, 48).received <= 1.55 * lower_bound(source, target, dims, 48)
    check_all((501, 10), source, [target], 48)


def test_meshes_without_common_refinement_meet_on_whole_tiles() -> None:
    """Tiles move to devices that the digits of the target number, where pieces would take hundreds of rounds."""
    source = Tiling(((Digit(128, 1),), (), ()))
    target = Tiling(((), (Digit(64, 24), Digit(8, 1536)), (Digit(24, 1),)))
    moves = [type(move).__name__ for move in plan_reshard(source, target, (1000, 1000, 1000), 12288).moves]
    assert "Permute" in moves
    assert "Exchange" not in moves
    source, target = Tiling(((Digit(8, 1),), (), ())), Tiling(((), (Digit(4, 6),), (Digit(6, 1),)))
    check_all((16, 9, 7), source, [target], 24)
    check_all((16, 9, 7), target, [source], 24)


def test_planning_takes_milliseconds_on_many_devices() -> None:
    """Sizes that nothing divides, over up to 16,384 devices; milliseconds each, with room for a busy machine."""
    begin = time.process_time()
    for devices in (256, 16384):
        outer, inner = Digit(32, devices // 32), Digit(devices // 32, 1)
        ends = [Tiling(dims) for dims in (((outer,), (inner,)), ((inner,), (outer,)), ((inner, outer), ()), ((), ()),
                                          ((Digit(devices // 16, 1),), (Digit(16, devices // 16),)))]
        for source in ends:
            for target in ends:
                plan_reshard(source, target, (1000, 777), devices)
    assert time.process_time() - begin < 2.5
