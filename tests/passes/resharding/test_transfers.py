"""Which slices devices read when state moves between meshes: everything once, what they have from themselves."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.frontends import parse_shape, parse_sharding
from hloom.ir.sharding.sharding import Sharding
from hloom.passes.resharding.base.tiles import bounds

CASES = [
    ("f32[10,6]", "{devices=[4,1]<=[4]}", "{devices=[3,2]<=[6]}", 4, 6),
    ("f32[10,6]", "{devices=[2,1,3]<=[6] last_tile_dim_replicate}", "{devices=[1,2]<=[2]}", 6, 2),
    ("bf16[7,9,4]", "{devices=[2,2,2]<=[4,2]T(1,0)}", "{devices=[1,5,1]<=[5]}", 8, 5),
    ("f32[16]", "{devices=[8]<=[8]}", "{devices=[8]7,6,5,4,3,2,1,0}", 8, 8),
    ("f32[6,4]", "{replicated}", "{devices=[3,1]<=[3]}", 3, 3),
    ("f32[]", "{replicated}", "{mesh['x'=3], []}", 3, 3),
    ("f32[6,4]", "{devices=[3,1]<=[3]}", "{maximal device=4}", 3, 5),
]


def _sharding(text: str) -> Sharding:
    found = parse_sharding(text)
    assert isinstance(found, Sharding)
    return found


@pytest.mark.parametrize(("shape", "source", "target", "senders", "receivers"), CASES)
def test_every_device_gets_its_tile_once(shape: str, source: str, target: str, senders: int, receivers: int) -> None:
    array, before, after = parse_shape(shape), _sharding(source), _sharding(target)
    plan = hloom.reshard_plan(before, after, array)
    have, want = (bounds(s.tiling(array.rank), array.dims, n) for s, n in ((before, senders), (after, receivers)))
    owner = 4 if "maximal" in target else None
    loaded = np.zeros((receivers, *array.dims), int)
    for read in plan.reads:
        region = tuple(slice(a, b) for a, b in read.region)
        assert all(a <= s and e <= b for (s, e), (a, b) in zip(read.region, have[read.sender].tolist(), strict=True))
        loaded[(read.receiver, *region)] += 1
        assert read.bytes == np.prod([b - a for a, b in read.region]) * array.element.byte_size
        if read.sender != read.receiver and read.receiver < senders:
            mine = have[read.receiver].tolist()
            assert any(e <= a or b <= s for (s, e), (a, b) in zip(read.region, mine, strict=True)), "it has that"
    for device in range(receivers):
        expected = np.zeros(array.dims, int)
        if owner in (None, device):
            expected[tuple(slice(a, b) for a, b in want[device].tolist())] = 1
        np.testing.assert_array_equal(loaded[device], expected)
    assert plan.moved_bytes == sum(r.bytes for r in plan.reads if r.sender != r.receiver)


def test_replicas_are_read_in_turn() -> None:
    """Four holders of each half, eight readers: the four that lack it read from different holders."""
    source, target = _sharding("{devices=[2,4]<=[8] last_tile_dim_replicate}"), _sharding("{devices=[1,8]<=[8]}")
    plan = hloom.reshard_plan(source, target, parse_shape("f32[8,8]"))
    assert len(plan.bytes_between) == 8
    assert len({sender for sender, _ in plan.bytes_between}) == 8
    assert set(plan.bytes_between.values()) == {16}


@pytest.mark.parametrize("replicated", ["{replicated}", "{mesh[], replicated}"])
def test_what_all_devices_have_they_read_from_themselves(replicated: str) -> None:
    """A replicated value is on the devices of the other sharding, not on device 0 alone."""
    everywhere, divided = _sharding(replicated), _sharding("{devices=[4]<=[4]}")
    shape = parse_shape("f32[8]")
    assert [(r.sender, r.receiver) for r in hloom.reshard_plan(everywhere, divided, shape).reads] == [
        (n, n) for n in range(4)]  # fmt: skip
    assert {r.receiver for r in hloom.reshard_plan(divided, everywhere, shape).reads} == {0, 1, 2, 3}
    assert len(hloom.reshard_plan(everywhere, everywhere, shape).reads) == 1
    few = hloom.reshard_plan(_sharding("{mesh['x'=2], [{}]}"), _sharding("{devices=[8]<=[8]}"), shape)
    assert sorted(r.sender for r in few.reads) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_what_cannot_be_read() -> None:
    shape, good = parse_shape("f32[8]"), _sharding("{devices=[4]<=[4]}")
    for partial in ("{mesh['x'=4], [{}], unreduced={'x'}}", "{unreduced}"):
        with pytest.raises(hloom.CompileError, match="partial sums"):
            hloom.reshard_plan(_sharding(partial), good, shape)
    with pytest.raises(hloom.CompileError, match="fixed dimensions"):
        hloom.reshard_plan(good, good, parse_shape("(f32[8])"))
