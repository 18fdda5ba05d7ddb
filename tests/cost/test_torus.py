"""Collectives in a torus of known shape: the axes that groups span, rings and lines, and the bisection."""

from __future__ import annotations

import pytest
from hloom.cost.links import Link, Links, near_cube
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.cost.torus import Side, in_shape, spanned
from hloom.ir.sharding.digit import Digit

CUBE = Link(0.0, 1e9, 0.0, 3, (4, 8, 16), 4)


@pytest.mark.parametrize(("devices", "sides"), [
    (16, [Side(16, True)]),
    (8, [Side(8, True)]),
    (32, [Side(4, True), Side(8, True)]),
    (512, [Side(4, True), Side(8, True), Side(16, True)]),
    (2, [Side(2, False)]),
    (4, [Side(4, True)]),
    (3, [Side(3, False)]),
])  # fmt: skip
def test_groups_span_axes_that_work_together(devices: int, sides: list[Side]) -> None:
    assert sorted(spanned(CUBE, devices)) == sorted(sides)


def test_lines_receive_at_half_the_rate() -> None:
    ring, line = Link(0.0, 1e9, 0.0, 2, (16, 16), 16), Link(0.0, 1e9, 0.0, 2, (8, 8), 16)
    assert in_shape("all-gather", ring, 16) == (8, 1.0)
    assert in_shape("all-gather", line, 8) == (7, 2.0)
    assert in_shape("reduce-scatter", ring, 256) == (16, 0.5)


def test_an_all_to_all_crosses_the_middle() -> None:
    ring = Link(0.0, 1e9, 0.0, 2, (16, 16), 16)
    assert in_shape("all-to-all", ring, 256) == (16, pytest.approx(16 / 4 * 256 / 255))
    # By hand: 256 devices send a byte each, half of all through the middle: 16 rows with two links, each half of 1e9.
    assert 256 / 2 / 2 / (16 * 2 * 0.5) == 16 / 4


def test_an_all_to_all_may_not_use_the_link_that_closes_a_ring() -> None:
    pod, slice_ = (Link(0.0, 1e9, 0.0, 2, shape, 32, 2, 1) for shape in ((32, 64), (8, 16)))
    rows = [in_shape("all-to-all", link, count)[1] * (1 - 1 / count) for link, count in ((pod, 2048), (slice_, 128))]
    assert rows == [pytest.approx(16), pytest.approx(4)]  # as the square root of the devices


def test_cores_of_a_node_share_its_links() -> None:
    pod = Link(0.0, 1e9, 0.0, 2, (32, 64), 32, 2)
    assert spanned(pod, 64) == (Side(32, True, 2),)
    assert spanned(pod, 32)[0].nodes in (16, 32)
    assert Side(32, True, 2).rate == Side(32, True).rate == 1
    assert Side(32, False, 2).rate == 1  # forth by one core of each node, back by the other
    assert Side(32, False).rate == 0.5


@pytest.mark.parametrize(("count", "axes", "sides"), [
    (4096, 3, (16, 16, 16)), (2048, 3, (8, 16, 16)), (128, 2, (8, 16)), (8, 3, (2, 2, 2)), (7, 2, (1, 7)),
])  # fmt: skip
def test_the_shape_of_a_job(count: int, axes: int, sides: tuple[int, ...]) -> None:
    assert near_cube(count, axes) == sides


def test_a_machine_knows_its_shape_by_the_devices() -> None:
    machine = PRESETS["tpu-v5e"].of_devices(256)
    (link,) = [link for _, link in machine.links.levels]
    assert link.shape == (16, 16)
    assert machine.of_devices(256) == machine
    row = machine.collective("all-gather", (Digit(16, 1),))
    both = machine.collective("all-gather", (Digit(256, 1),))
    assert row.per_byte == pytest.approx(2 * both.per_byte)
    plain = Cluster(Links(((1, Link()),)))
    assert plain.of_devices(8) == plain
