"""Meshes laid on a torus: the best of all layouts, the order of devices, and links that groups share."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import hloom
import numpy as np
import pytest
from hloom.cost.layout import MeshLayout, TorusPart, best_layout
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.cost.torus import Side, over, side_of

POD = Link(0.0, 90e9, 1e-6, 2, (4, 16), 4)
TWO_CORES = Link(0.0, 83e9, 1e-6, 2, (8, 16), 32, 2, 1)  # a slice of TPU v3


def laid(sizes: dict[str, int], link: Link = POD) -> MeshLayout | None:
    """Returns the layout of a program that reduces 64 MB over each axis of a mesh."""
    mesh = "mesh[" + ",".join(f"'{name}'={size}" for name, size in sizes.items()) + "]"
    names = [name for name, size in sizes.items() if size > 1]
    value = "f32[4096,4096]"
    reduced = "".join(
        f"{name} = {value} all-reduce({before}), replica_groups={mesh} {{'{name}'}}, use_global_device_ids=true, "
        f"channel_id={n}, to_apply=add\n" for n, (before, name) in enumerate(pairwise(["p", *names]), 1)
    )  # fmt: skip
    return best_layout(hloom.parse(f"""HloModule m, num_partitions={prod(sizes.values())}
    add {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }}
    ENTRY e {{
      p = {value} parameter(0), sharding={{{mesh}, [{{'{names[0]}'}}, {{}}]}}
      {reduced} ROOT r = {value} negate({names[-1]})
    }}"""), Cluster(Links(((1, link),))))


def test_each_axis_gets_its_own_ring() -> None:
    """By rows, x would take axis 0 and every fourth device of axis 1, whose links four groups share."""
    found = laid({"x": 16, "y": 4})
    assert found is not None
    assert found.parts == ((TorusPart(1, 4),), (TorusPart(0, 16),))
    assert found.lines == ("x: a ring of 16 on axis 1", "y: a ring of 4 on axis 0")
    sent = 2 * 4096 * 4096 * 4 * (15 / 16 + 3 / 4) / 90e9
    assert found.seconds == pytest.approx(2 * (16 / 2 + 4 / 2) * 1e-6 + sent)
    assert found.by_rows is not None
    assert found.by_rows > found.seconds
    assert str(found.order) == "([4,16]T(1,0))"


@pytest.mark.parametrize("sizes", [(2, 32), (8, 8), (2, 4, 8), (4, 2, 8), (64, 1), (1, 64)])
def test_an_order_moves_along_the_axes_of_its_parts(sizes: tuple[int, ...]) -> None:
    found = laid(dict(zip("xyz", sizes, strict=False)))
    assert found is not None
    order = np.arange(64).reshape(found.order.dims).transpose(found.order.perm).reshape(-1)
    places = np.stack(np.unravel_index(order, POD.shape)).reshape(2, *sizes)
    for axis in range(len(sizes)):
        moves = {number for number in range(2) if np.any(np.diff(places[number], axis=axis))}
        assert moves == {n for n, parts in enumerate(found.parts) if axis in [part.axis for part in parts]}


def test_groups_share_the_links_that_they_pass() -> None:
    assert side_of(POD, 1, 4) == Side(4, False)
    assert side_of(POD, 1, 4, 4) == Side(4, True, sharing=4)
    assert side_of(POD, 1, 2, 4) == Side(2, False, sharing=4)
    apart, near = (over("all-gather", [side_of(POD, 1, 4, step)], 4)[1] for step in (4, 1))
    assert apart == 2 * near  # a ring whose links four groups share, beside a line
    cores = Link(0.0, 1e9, 0.0, 2, (16, 32), 32, 2)
    assert side_of(cores, 1, 16, 2) == Side(16, False)  # the cores of a node do not pass each other


def test_no_work_grows_with_the_devices() -> None:
    found = laid({"x": 2**15, "y": 2**15}, Link(0.0, 1e9, 1e-6, 3, (2**10,) * 3, 4))
    assert found is not None
    assert prod(found.order.dims) == 2**30


@pytest.mark.parametrize(("sizes", "link", "count"), [
    ({"x": 16, "y": 4}, POD, 2), ({"x": 8, "y": 8}, POD, 3), ({"x": 8, "y": 16}, TWO_CORES, 2),
])  # fmt: skip
def test_an_axis_is_divided_only_where_it_must(sizes: dict[str, int], link: Link, count: int) -> None:
    """Blocks of both axes would take less time, as they use more links at once."""
    found = laid(sizes, link)
    assert found is not None
    assert sum(map(len, found.parts)) == count


def test_a_mesh_that_does_not_fit_has_none() -> None:
    assert laid({"x": 3, "y": 2}) is None
    assert laid({"x": 3, "y": 4}, Link(0.0, 1e9, 0.0, 2, (6, 2), 4)) is not None
    assert laid({"x": 9, "y": 4}, Link(0.0, 1e9, 0.0, 2, (6, 6), 4)) is not None
    assert laid({"x": 8, "y": 2}, Link(0.0, 1e9, 0.0, 2, (2, 8), 4)) is not None
    assert laid({"x": 4, "y": 16}, Link(0.0, 1e9)) is None  # no torus
