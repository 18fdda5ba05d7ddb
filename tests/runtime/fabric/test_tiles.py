"""Shards of global arrays and back, against the definition: tile numbers by device number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hloom.frontends import parse_sharding
from hloom.ir.diagnostics import CompileError
from hloom.ir.sharding.sharding import Sharding
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.fabric.tiles import assemble, poison_value, shard, shards
from hypothesis import given
from hypothesis import strategies as st


def tiling(text: str, rank: int) -> Tiling:
    sharding = parse_sharding(text)
    assert isinstance(sharding, Sharding)
    return sharding.tiling(rank)


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        # the tile array of device numbers, as the text defines it
        ("{devices=[2,4]<=[8]}", np.arange(8).reshape(2, 4)),
        ("{devices=[4,2]<=[2,4]T(1,0)}", np.arange(8).reshape(2, 4).T.reshape(4, 2)),
        ("{devices=[2,2]3,0,2,1}", np.array([[3, 0], [2, 1]])),
        ("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", np.arange(4).reshape(2, 2).T.reshape(2, 1, 2)),
        ("{mesh['a'=2,'b'=4], [{'b':(2)2}, {'a','b':(1)2}]}",
         np.arange(8).reshape(2, 2, 2).transpose(2, 0, 1).reshape(2, 4)),
        ("{replicated}", np.arange(3).reshape(1, 1, 3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dims", [(8, 8), (5, 7), (1, 3), (0, 2)])
def test_shards_follow_the_tile_array(text: str, tiles: np.ndarray, dims: tuple[int, int]) -> None:
    whole = np.arange(dims[0] * dims[1], dtype=np.float32).reshape(dims) + 1
    local = [-(-n // t) for n, t in zip(dims, tiles.shape[:2], strict=True)]
    place = tiling(text, 2)
    shards: dict[int, np.ndarray] = {}
    for at in itertools.product(*map(range, tiles.shape)):
        padded = np.zeros(local, np.float32)
        part = whole[at[0] * local[0] : (at[0] + 1) * local[0], at[1] * local[1] : (at[1] + 1) * local[1]]
        padded[: part.shape[0], : part.shape[1]] = part
        device = int(tiles[at])
        shards[device] = shard(whole, place, device)
        np.testing.assert_array_equal(shards[device], padded)
    np.testing.assert_array_equal(assemble([shards[d] for d in range(len(shards))], place, dims), whole)


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("{devices=[2,4]<=[8]}", 8),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", 2),
        ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", 2),
        ("{replicated}", 1),
        ("{maximal device=2}", 2),
    ],
)
def test_devices_share_the_tiles_that_they_have_in_common(text: str, arrays: int) -> None:
    place, whole = tiling(text, 2), np.arange(15.0).reshape(3, 5)
    found = shards(whole, place, range(8), poison=True)
    for device, part in enumerate(found):
        np.testing.assert_array_equal(part, shard(whole, place, device, poison=True))
    assert len({id(part) for part in found}) == arrays


@given(st.integers(0, 20), st.sampled_from([1, 2, 4]), st.booleans())
def test_round_trip_with_poison(size: int, count: int, poison: bool) -> None:
    place = tiling(f"{{devices=[{count},{4 // count}]<=[4] last_tile_dim_replicate}}", 1)
    whole = np.arange(size, dtype=np.int8)
    shards = [shard(whole, place, d, poison) for d in range(4)]
    np.testing.assert_array_equal(assemble(shards, place, (size,)), whole)
    padding = sum(len(s) for s in shards[:: 4 // count]) - size
    assert sum(int((s == 127).sum()) for s in shards[:: 4 // count]) == (padding if poison else 0)


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy is not None])
def test_every_type_has_a_poison(name: str) -> None:
    dtype = ELEMENT_TYPES[name].numpy
    assert dtype is not None
    value = poison_value(dtype)
    assert value.dtype == dtype
    assert value != dtype.type(0) or np.isnan(value)


def test_replicas_must_agree() -> None:
    place = tiling("{devices=[1,2,2]<=[4] last_tile_dim_replicate}", 2)
    whole = np.zeros((2, 4), np.float32)
    shards = [shard(whole, place, d) for d in range(4)]
    shards[3][1, 0] = 5
    message = r"devices 2 and 3 hold the same part of value but disagree at \[1, 2\]: 0.0 and 5.0 \(1 of 4"
    with pytest.raises(CompileError, match=message):
        assemble(shards, place, (2, 4))


def test_padding_need_not_agree() -> None:
    place = tiling("{devices=[2,2]<=[4] last_tile_dim_replicate}", 1)
    shards = [shard(np.ones(3, np.float32), place, d) for d in range(4)]
    shards[3][1] = np.nan
    np.testing.assert_array_equal(assemble(shards, place, (3,)), np.ones(3))


@pytest.mark.parametrize("dims", ["{'x'}], unreduced={'y'}", "{}], unreduced={'x','y'}"])
@pytest.mark.parametrize("element", ["f32", "bf16", "f8e8m0fnu", "c64", "s8", "pred"])
def test_unreduced_parts_add_up_to_every_bit(dims: str, element: str) -> None:
    place, dtype = tiling(f"{{mesh['x'=2,'y'=2], [{dims}}}", 1), ELEMENT_TYPES[element].numpy
    whole = np.array([-0.0, 0.0, 1.0]).astype(dtype)
    found = assemble([shard(whole, place, device) for device in range(4)], place, (3,))
    assert found.tobytes() == whole.tobytes()


@pytest.mark.parametrize("dims", [(3, 2), (4,), ()])
@pytest.mark.parametrize("poison", [False, True])
def test_of_an_array_on_one_device_the_others_have_padding(dims: tuple[int, ...], poison: bool) -> None:
    place = tiling("{maximal device=2}", len(dims))
    whole = np.full(dims, 7, np.float32)
    shards = [shard(whole, place, device, poison) for device in range(4)]
    for device, part in enumerate(shards):
        assert part.shape == dims
        np.testing.assert_array_equal(part, np.full(dims, 7 if device == 2 else np.nan if poison else 0, np.float32))
    np.testing.assert_array_equal(assemble(shards, place, dims), whole)
