"""Meshes: axes as digits, device orders, sub-axes."""

from __future__ import annotations

import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.mesh import AxisRef, IotaOrder, Mesh

GRID = Mesh((("data", 2), ("model", 4)))
TURNED = Mesh((("data", 2), ("model", 4)), IotaOrder((4, 2), (1, 0)))
ODD = Mesh((("x", 2), ("y", 2)), (3, 1, 2, 0))


def test_axes_are_digits() -> None:
    assert GRID.digits(AxisRef("data")) == (Digit(2, 4),)
    assert GRID.digits(AxisRef("model")) == (Digit(4, 1),)
    assert TURNED.digits(AxisRef("data")) == (Digit(2, 1),)
    assert TURNED.digits(AxisRef("model")) == (Digit(4, 2),)


def test_sub_axes_are_parts_of_digits() -> None:
    assert GRID.digits(AxisRef("model", 1, 2)) == (Digit(2, 2),)
    assert GRID.digits(AxisRef("model", 2, 2)) == (Digit(2, 1),)
    with pytest.raises(ValueError, match="no part"):
        GRID.digits(AxisRef("model", 3, 2))
    with pytest.raises(KeyError):
        GRID.digits(AxisRef("z"))


def test_device_lists() -> None:
    assert GRID.device_ids() == tuple(range(8))
    assert TURNED.device_ids() == (0, 2, 4, 6, 1, 3, 5, 7)
    assert ODD.device_ids() == (3, 1, 2, 0)


def test_irregular_orders_count_places() -> None:
    assert ODD.order_key == (3, 1, 2, 0)
    assert GRID.order_key is None
    assert TURNED.order_key is None
    # An explicit list that is regular counts devices all the same.
    assert Mesh((("x", 2), ("y", 2)), (0, 2, 1, 3)).order_key is None


def test_refs_find_axes_again() -> None:
    for mesh in (GRID, TURNED):
        for ref in (AxisRef("data"), AxisRef("model"), AxisRef("model", 1, 2), AxisRef("model", 2, 2)):
            assert mesh.refs(mesh.digits(ref)) == (ref,)
    assert GRID.refs((Digit(8, 1),)) == (AxisRef("data"), AxisRef("model"))
    assert GRID.refs((Digit(3, 1),)) is None


def test_large_meshes_cost_nothing() -> None:
    mesh = Mesh((("a", 2**20), ("b", 2**10)))
    assert mesh.size == 2**30
    assert mesh.digits(AxisRef("a")) == (Digit(2**20, 2**10),)


def test_text() -> None:
    assert str(GRID) == "mesh['data'=2,'model'=4]"
    assert str(TURNED) == "mesh['data'=2,'model'=4], device_ids=([4,2]T(1,0))"
    assert str(ODD) == "mesh['x'=2,'y'=2], device_ids=(3,1,2,0)"
    assert str(AxisRef("model", 2, 2)) == "'model':(2)2"


@pytest.mark.parametrize(
    ("axes", "order", "message"),
    [
        ((("x", 0),), None, "axis 'x' needs a size of at least 1"),
        ((("", 2),), None, "'' is no name of an axis"),
        ((("x'", 2),), None, "is no name of an axis"),
        ((("x", 2), ("x", 4)), None, "a mesh has no two axes of one name: x, x"),
        ((("x", 2**31),), None, "a mesh has at most 2147483647 devices"),
        ((("x", 2),), (0, 0), "does not have each of its 2 devices once"),
        ((("x", 2),), (0, 1, 2), "does not have each of its 2 devices once"),
        ((("x", 2),), IotaOrder((3,), (0,)), "does not have each of its 2 devices once"),
        ((("x", 2),), IotaOrder((2, 1), (0, 0)), "does not have each of its 2 devices once"),
    ],
)
def test_what_is_no_mesh(axes: tuple[tuple[str, int], ...], order: IotaOrder | None, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Mesh(axes, order)
