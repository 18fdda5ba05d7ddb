"""Pictures of shardings."""

from __future__ import annotations

import pytest
from hloom.frontends import parse_shape, parse_sharding
from hloom.ir.sharding.sharding import Sharding
from hloom.report.picture import picture, short_list


def drawn(shape: str, text: str) -> list[str]:
    sharding = parse_sharding(text)
    assert isinstance(sharding, Sharding)
    return picture(parse_shape(shape), sharding).splitlines()[1:]


def test_two_dimensions() -> None:
    assert drawn("f32[8,6]", "{mesh['x'=2,'y'=3], [{'y'}, {'x'}]}") == [
        "        0:3   3:6",
        "  0:3 |  0  |  3  |",
        "  3:6 |  1  |  4  |",
        "  6:8 |  2  |  5  |",
    ]


def test_one_dimension_with_an_empty_tile() -> None:
    assert drawn("f32[5]", "{devices=[4,2]<=[8] last_tile_dim_replicate}") == [
        "  0:2 | 0-1 |",
        "  2:4 | 2-3 |",
        "  4:5 | 4-5 |",
        "  -   | 6-7 |",
    ]


def test_slices() -> None:
    found = drawn("f32[4,2,2]", "{devices=[2,1,2]<=[4]}")
    assert found == [
        "  [:, :, 0:1]", "        0:2", "  0:2 |  0  |", "  2:4 |  2  |",
        "  [:, :, 1:2]", "        0:2", "  0:2 |  1  |", "  2:4 |  3  |",
    ]  # fmt: skip


def test_irregular_order() -> None:
    assert drawn("f32[4]", "{devices=[4]3,1,0,2}") == ["  0:1 | 3 |", "  1:2 | 1 |", "  2:3 | 0 |", "  3:4 | 2 |"]


def test_kinds() -> None:
    assert drawn("f32[4]", "{maximal device=3}") == ["  all of it on device 3"]
    assert drawn("f32[4]", "{replicated}") == ["  all of it on every device"]


def test_large_meshes_are_cut() -> None:
    assert len(drawn("f32[64,64,64]", "{devices=[32,1,32]<=[1024]}")) == 1 + 16 * (1 + 1 + 13)


@pytest.mark.parametrize(
    ("devices", "text"),
    [([0, 1, 2, 3], "0-3"), ([0, 2], "0,2"), ([0, 4, 8, 12], "0,4,..,12"), ([0, 1, 8, 9], "0-1,8-9")],
)
def test_short_list(devices: list[int], text: str) -> None:
    assert short_list(devices) == text
