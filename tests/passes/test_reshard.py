"""Resharding between all pairs of shardings of small meshes: the right data arrives, at the cost the plan says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import hloom
import numpy as np
import pytest
from hloom.frontends import parse_shape, parse_sharding
from hloom.ir.computation import Computation
from hloom.ir.element_type import F32
from hloom.ir.mesh import AxisRef, IotaOrder, Mesh
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.shape import array
from hloom.ir.sharding import DimSharding, Sharding, ShardingKind, Spelling
from hloom.passes.spmd import reshard_plan
from hloom.passes.spmd.certificate import Certificate, reshard, transfers
from hloom.passes.spmd.exchange import bounds

FOUR = [Mesh((("x", 2), ("y", 2))), Mesh((("a", 4),), (0, 3, 1, 2))]
SIX = [Mesh((("x", 2), ("y", 3))), Mesh((("a", 3), ("b", 2)))]
EIGHT = [Mesh((("x", 2), ("y", 2), ("z", 2))), Mesh((("a", 4), ("b", 2)), IotaOrder((2, 4), (1, 0)))]


def _shardings(mesh: Mesh, rank: int) -> list[Sharding]:
    """All ways to spread some of the axes, in any order, over the dimensions."""
    found: dict[tuple[tuple[AxisRef, ...], ...], None] = {}
    names = [name for name, _ in mesh.axes]
    for count in range(len(names) + 1):
        for axes in itertools.permutations(names, count):
            for places in itertools.product(range(rank), repeat=count):
                dims: list[list[AxisRef]] = [[] for _ in range(rank)]
                for axis, place in zip(axes, places, strict=True):
                    dims[place].append(AxisRef(axis))
                found[tuple(map(tuple, dims))] = None
    return [
        Sharding(ShardingKind.TILED, mesh, tuple(map(DimSharding, dims)), spelling=Spelling.NAMED) for dims in found
    ]


def _program(dims: tuple[int, ...], source: Sharding, target: Sharding, devices: int) -> hloom.Module:
    module, entry = hloom.Module("m"), Computation("e")
    x = entry.add("parameter", (), ParameterAttributes(0), array(F32, dims), "x")
    entry.root = entry.add("copy", (x,))
    x.sharding, entry.root.sharding = source, target
    module.add_computation(entry, entry=True)
    module.num_partitions = devices
    return module


def _check_pairs(meshes: list[Mesh], dims: tuple[int, ...]) -> None:
    devices, rank = meshes[0].size, len(dims)
    value = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    every = [s for mesh in meshes for s in _shardings(mesh, rank)]
    for source, target in itertools.product(every, every):
        local = hloom.partition(_program(dims, source, target, devices))
        np.testing.assert_array_equal(hloom.simulate(local, [value], poison=True)[0], value, f"{source} to {target}")
        found = reshard(array(F32, dims), source, target)
        assert found.received_bytes >= found.bound_bytes
        assert bool(found.collectives) == bool(hloom.collectives(local))


@pytest.fixture(params=[0.0, reshard_plan.LATENCY], ids=["bytes count", "latency counts"])
def _latency(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With free collectives even tiny arrays take the way of fewest bytes."""
    monkeypatch.setattr(reshard_plan, "LATENCY", request.param)
    reshard_plan.plan_reshard.cache_clear()
    yield
    reshard_plan.plan_reshard.cache_clear()


@pytest.mark.usefixtures("_latency")
@pytest.mark.parametrize(("meshes", "dims"), [(FOUR, (7,)), (FOUR, (4, 6)), (SIX, (12,)), (SIX, (5, 7))])
def test_all_pairs(meshes: list[Mesh], dims: tuple[int, ...]) -> None:
    _check_pairs(meshes, dims)


@pytest.mark.slow
@pytest.mark.usefixtures("_latency")
@pytest.mark.parametrize(("meshes", "dims"), [(FOUR, (4, 6)), (SIX, (6, 6)), (EIGHT, (8, 8)), (EIGHT, (5, 9))])
def test_more_pairs(meshes: list[Mesh], dims: tuple[int, ...]) -> None:
    _check_pairs(meshes, dims)


def _certificate(shape: str, source: str, target: str, memory: int | None = None) -> Certificate:
    sharding = [parse_sharding(s) for s in (source, target)]
    assert isinstance(sharding[0], Sharding)
    assert isinstance(sharding[1], Sharding)
    return reshard(parse_shape(shape), sharding[0], sharding[1], memory)


def test_a_cube_to_slabs_moves_what_it_must() -> None:
    found = _certificate("f32[32,32,32]", "{devices=[2,2,2]<=[8]}", "{devices=[8,1,1]<=[8]}")
    assert found.received_bytes == 16 * 1024


def test_no_gather_between_far_shardings() -> None:
    source, target = "{devices=[2,1,4]<=[4,2]T(1,0)}", "{devices=[1,8,1]<=[8]}"
    moves: tuple[str, ...] = _certificate("f32[64,64,64]", source, target).moves
    assert all(move.startswith("all-to-all") for move in moves)


def test_meshes_without_common_refinement_do_not_replicate() -> None:
    found = _certificate("f32[512,512]", "{devices=[2,3]<=[6]}", "{devices=[3,2]<=[6]}")
    whole = 512 * 512 * 4
    assert found.received_bytes < whole // 4


def test_memory_limit() -> None:
    source, target = "{devices=[8,1]<=[8]}", "{replicated}"
    whole = 64 * 64 * 4
    assert _certificate("f32[64,64]", source, target, 2 * whole).peak_bytes <= 2 * whole
    with pytest.raises(hloom.CompileError, match="no plan stays within"):
        _certificate("f32[64,64]", source, target, whole)


def test_transfers_between_meshes_of_different_size() -> None:
    shape = parse_shape("f32[10,6]")
    source, target = parse_sharding("{devices=[4,1]<=[4]}"), parse_sharding("{devices=[3,2]<=[6]}")
    assert isinstance(source, Sharding)
    assert isinstance(target, Sharding)
    value = np.arange(60, dtype=np.float32).reshape(10, 6)
    have = bounds(source.tiling(2), (10, 6), 4)
    want = bounds(target.tiling(2), (10, 6), 6)
    loaded = np.full((6, 10, 6), np.nan, np.float32)
    for device in range(4):
        (a, b), (c, d) = have[device].tolist()
        loaded[device, a:b, c:d] = value[a:b, c:d]
    for move in transfers(shape, source, target):
        (a, b), (c, d) = move.region
        (e, f), (g, h) = have[move.sender].tolist()
        assert e <= a <= b <= f
        assert g <= c <= d <= h
        assert np.isnan(loaded[move.receiver, a:b, c:d]).all(), "already there"
        loaded[move.receiver, a:b, c:d] = value[a:b, c:d]
        assert move.bytes == (b - a) * (d - c) * 4
    for device in range(6):
        (a, b), (c, d) = want[device].tolist()
        np.testing.assert_array_equal(loaded[device, a:b, c:d], value[a:b, c:d])
