"""Shardings: the spellings of one meaning, against XLA's own conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse_sharding
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.ir.sharding.sharding import (
    DimSharding,
    Sharding,
    ShardingKind,
    Spelling,
    TupleSharding,
    leaf_shardings,
)
from hloom.ir.sharding.sharding_text import SUBGROUPS, shardy_text
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.tools.difference import sharding_key
from hloom.ir.types.element_type import F32
from hloom.ir.types.shape import array


def single(text: str) -> Sharding:
    found = parse_sharding(text)
    assert isinstance(found, Sharding)
    return found


V2 = [
    "{replicated}", "{maximal device=3}", "{devices=[4,2]<=[8]}", "{devices=[4,2]<=[2,4]T(1,0)}",
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[2,1,4]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated, maximal}}",
    "{devices=[2,2]0,3,1,2}", "{devices=[1,2,2,2]<=[8] last_tile_dims={replicated, manual}}",
    "{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}", "{devices=[2,2]<=[2,2]T(0,1)}",
    "{devices=[3,2]<=[2,3]T(1,0)}", "{devices=[2,3]<=[2,3]T(1,0)}", "{devices=[2,1,3]<=[2,3]T(1,0)}",
    "{devices=[1,1,4]<=[4] last_tile_dim_replicate}",
    "{devices=[1,2,2,3,2]<=[2,2,2,3]T(1,3,0,2) last_tile_dims={maximal, replicated, maximal}}",
    "{devices=[2,2,1,2]5,2,7,0,1,3,6,4 last_tile_dims={replicated, unreduced, manual}}",
    "{devices=[1,3,3,2,2,1]<=[6,6,1]T(1,0,2) last_tile_dims={maximal, replicated, maximal}}",
    "{devices=[2,3]<=[2,1,3]T(2,1,0) last_tile_dims={maximal, maximal}}",
    "{devices=[1,2,2,3,2]<=[2,2,2,3]T(1,3,0,2) last_tile_dims={replicated, manual, replicated}}",
    "{devices=[3,4,1]<=[3,1,2,1,2,1]T(4,2,1,3,5,0)}", "{devices=[1,4,4,3]<=[2,24]T(1,0) last_tile_dims={replicated}}",
    "{devices=[1,2,2,1,6,2]<=[8,3,2]T(0,2,1) last_tile_dims={replicated, replicated}}",
]  # fmt: skip

ONE_DEVICE = [
    "{devices=[1,1]<=[1]}", "{devices=[1]<=[1]}", "{devices=[1,1,1]<=[1,1]T(1,0)}", "{devices=[1,1]<=[1] shard_as 3}",
    "{devices=[1,1,1]<=[1] last_tile_dim_replicate}",
    *(f"{{devices=[1,1,1]<=[1] last_tile_dims={{{kind}}}}}" for kind in SUBGROUPS),
    *(f"{{devices=[1,1,1,1]<=[1] last_tile_dims={{{one}, {other}}}}}" for one in SUBGROUPS for other in SUBGROUPS),
    "{devices=[1]<=[1] last_tile_dims={manual}}", "{devices=[1]<=[1] last_tile_dim_replicate}",
]  # fmt: skip


@pytest.mark.parametrize("text", [*V2, *ONE_DEVICE])
def test_device_lists_are_canonical_as_in_xla(text: str) -> None:
    hlo: Any = pytest.importorskip("jaxlib._hlo")
    found = single(text)
    assert str(found) == str(hlo.HloSharding.from_string(text))
    assert single(str(found)) == found


def test_a_tile_among_one_device_is_another_word_for_replicated() -> None:
    tile, replicated = single("{devices=[1,1]<=[1]}"), single("{replicated}")
    assert tile != replicated
    assert tile.is_replicated
    assert tile.fits_any_mesh
    assert tile.tiling(2) == replicated.tiling(2)
    assert sharding_key(tile, 2) == sharding_key(replicated, 2)
    assert single("{devices=[1,1]<=[1] last_tile_dims={manual, replicated}}") == replicated
    # What passes make of a tiling of one device says nothing of tiles.
    assert str(Sharding.on_own_mesh(Tiling.replicated(2), 1)) == "{replicated}"


def test_axes_of_size_1_divide_nothing() -> None:
    idle = single("{mesh['a'=1,'b'=4], [{'a'}, {}], replicated={'b'}}")
    assert idle.is_replicated
    assert not idle.fits_any_mesh
    assert single("{mesh['a'=1], [{'a'}, {}]}").fits_any_mesh
    assert single("{mesh['b'=4], replicated}").fits_any_mesh
    assert not single("{devices=[1,1,4]<=[4] last_tile_dims={maximal}}").fits_any_mesh
    assert not single("{manual}").fits_any_mesh


NAMED = [
    "{mesh['a'=2,'b'=4], [{'b','a'}, {}]}", "{mesh['a'=2,'b'=4], [{'b':(1)2}, {'b':(2)2}]}",
    "{mesh['a'=2,'b'=4], [{'a'}, {'b'}]}", "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b':(2)2}]}",
    "{mesh['a'=2,'b'=4], [{}, {'a'}], manual={'b'}}", "{mesh['a'=2,'b'=2], device_ids=(3,1,2,0), [{'a'}, {}]}",
    "{mesh['a'=2,'b'=3,'c'=4], [{'c','a'}, {'b'}]}",
    "{mesh['a'=6], device_ids=([2,3]T(1,0)), [{'a':(1)2}, {'a':(2)3}]}",
]  # fmt: skip

WHOLE = [f"{{mesh['a'=2,'b'=1], {word}{more}}}" for word in ("replicated", "manual", "unreduced")
         for more in ("", ', metadata={op_name="x"}')]  # fmt: skip


@pytest.mark.parametrize("text", [*NAMED, *WHOLE])
def test_named_axes_print_as_they_are_read(text: str) -> None:
    assert str(single(text)) == text


@pytest.mark.parametrize("text", NAMED)
def test_axes_become_device_lists_as_in_xla(text: str) -> None:
    hlo: Any = pytest.importorskip("jaxlib._hlo")
    theirs = hlo.HloSharding.from_string(text)
    ours = single(text)
    mesh = ours.mesh
    assert mesh is not None
    as_list = Sharding(ours.kind, mesh, ours.dims, ours.replicated, ours.unreduced, ours.manual, spelling=Spelling.V2)
    wanted = str(hlo.HloSharding.from_string(str(as_list)))
    assert str(_v2(theirs)) == wanted


def _v2(sharding: Any) -> Any:
    return sharding.v3_to_v2_sharding() if hasattr(sharding, "v3_to_v2_sharding") else sharding


@pytest.mark.parametrize("text", ["{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
                                  "{devices=[2,2]0,3,1,2}", "{mesh['a'=2,'b'=4], [{'b':(1)2}, {'a'}]}",
                                  "{mesh['a'=6], device_ids=([2,3]T(1,0)), [{'a':(2)3}, {'a':(1)2}]}"])
def test_tiles_are_where_the_list_says(text: str) -> None:
    """The digits of each dimension give every device the tile number that the device list gives it."""
    sharding = single(text)
    tiling = sharding.tiling(2)
    mesh = sharding.mesh
    assert mesh is not None
    places = mesh.device_ids() if tiling.order is not None else tuple(range(mesh.size))
    found = {device: tuple(_number(d, place) for d in tiling.dims) for place, device in enumerate(places)}
    hlo: Any = pytest.importorskip("jaxlib._hlo")
    theirs = _v2(hlo.HloSharding.from_string(text))
    dims = theirs.tile_assignment_dimensions()
    grid = np.array(theirs.tile_assignment_devices()).reshape(dims)
    for index, device in np.ndenumerate(grid):
        assert found[int(device)] == index[:2]


def _number(digits: tuple[Digit, ...], device: int) -> int:
    result = 0
    for digit in digits:
        result = result * digit.size + device // digit.stride % digit.size
    return result


def test_tiling_and_back() -> None:
    mesh = Mesh((("a", 2), ("b", 4)))
    sharding = Sharding(ShardingKind.TILED, mesh, (DimSharding((AxisRef("b"), AxisRef("a"))), DimSharding()),
                        spelling=Spelling.NAMED)
    assert sharding.tiling(2) == Tiling(((Digit(4, 1), Digit(2, 4)), ()))
    assert Sharding.from_tiling(sharding.tiling(2), mesh) == sharding
    assert Sharding.from_tiling(Tiling(((Digit(3, 1),),)), mesh) is None


def test_an_axis_cannot_be_used_twice() -> None:
    mesh = Mesh((("a", 2),))
    twice = Sharding(ShardingKind.TILED, mesh, (DimSharding((AxisRef("a"),)), DimSharding((AxisRef("a"),))))
    with pytest.raises(ValueError, match="twice"):
        twice.tiling(2)


def test_local_shapes_are_padded_up() -> None:
    tiling = single("{devices=[4,1]<=[4]}").tiling(2)
    assert tiling.local_shape(array(F32, (10, 3))) == array(F32, (3, 3))
    assert not tiling.is_even((10, 3))
    assert tiling.is_even((8, 3))


def test_shardy_spelling() -> None:
    sharding = single("{mesh['a'=2,'b'=4], [{'b':(1)2,'a'}, {?}], replicated={'b':(2)2}}")
    assert shardy_text(sharding, 3) == '#sdy.sharding<@mesh, [{"b":(1)2, "a"}, {?}, {}], replicated={"b":(2)2}>'


def test_leaves_of_tuples() -> None:
    pair = parse_sharding("{{replicated}, {manual}}")
    assert isinstance(pair, TupleSharding)
    assert leaf_shardings(pair, 2) == pair.elements
    assert leaf_shardings(pair.elements[0], 3) == (pair.elements[0],) * 3
    with pytest.raises(ValueError, match="2 entries for 3"):
        leaf_shardings(pair, 3)


def test_kinds() -> None:
    assert single("{mesh['a'=2], [{}, {}]}").is_replicated
    assert single("{manual}").has_manual
    assert single("{mesh['a'=2,'b'=2], [{'a'}], manual={'b'}}").has_manual
    assert not single("{devices=[2,1]<=[2]}").is_replicated


def test_maximal_subgroups_are_whole_on_all_their_devices() -> None:
    """That one of them holds a tile is true if all do."""
    one = single("{devices=[2,1,4]<=[8] last_tile_dims={maximal}}")
    assert one.tiling(2) == single("{devices=[2,1,4]<=[8] last_tile_dim_replicate}").tiling(2)
    assert not single("{devices=[1,1,8]<=[8] last_tile_dims={maximal}}").has_manual
