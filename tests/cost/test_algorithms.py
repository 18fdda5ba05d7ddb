"""Costs of collectives by algorithm and from measurements."""

from __future__ import annotations

import itertools

import pytest
from hloom.cost.algorithms import transfer
from hloom.cost.fits import Fit, measured
from hloom.cost.formulas import Kind, received
from hloom.cost.links import Link, Links
from hloom.cost.machine import SECOND, Cluster, Transfer
from hloom.cost.presets import PRESETS
from hloom.ir.sharding.digit import Digit

SWITCH = Link(0.0, 1.0, 1.0)  # a step takes 1 s, a byte 1 s
KINDS: tuple[Kind, ...] = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


def seconds(kind: Kind, whole: float, devices: int, link: Link = SWITCH) -> float:
    return transfer(kind, [(link, devices)]).time(received(kind, whole, devices)) / SECOND


@pytest.mark.parametrize(("kind", "wanted"), [
    ("all-gather", 3 + 700), ("reduce-scatter", 3 + 700), ("all-reduce", 6 + 1400), ("all-to-all", 7 + 700),
    ("collective-permute", 1 + 800), ("collective-broadcast", 3 + 800),
])  # fmt: skip
def test_large_arrays_over_a_switch(kind: Kind, wanted: float) -> None:
    assert seconds(kind, 800, 8) == pytest.approx(wanted)


@pytest.mark.parametrize(("kind", "wanted"), [("all-reduce", 3 + 3 * 0.8), ("all-to-all", 3 + 3 * 0.4)])
def test_small_arrays_take_fewer_steps_and_more_bytes(kind: Kind, wanted: float) -> None:
    assert seconds(kind, 0.8, 8) == pytest.approx(wanted)


def test_a_torus_uses_all_axes() -> None:
    link = Link(0.0, 1.0, 1.0, torus=3)
    # 64 devices are a cube with sides of four: three rings at once, each with a third of the bytes.
    assert seconds("all-gather", 6400, 64, link) == pytest.approx(3 * 2 + 6300 / 3)
    # An element of an all-to-all crosses one link of each axis on average.
    assert seconds("all-to-all", 6400, 64, link) == pytest.approx(6 + 6400)
    # Both directions of a ring of 16 in a torus with one axis: n k / 8 over a link, two of which are the bandwidth.
    assert seconds("all-to-all", 1600, 16, Link(0.0, 1.0, 0.0, torus=1)) == pytest.approx(1600 * 16 / 4)


def test_levels_are_taken_apart() -> None:
    near, far = Link(0.0, 10.0, 1e-3), Link(0.0, 1.0, 1e-3)
    found = transfer("all-gather", [(near, 8), (far, 4)])
    # Over slow links four devices gather an eighth of 320 bytes, then eight devices the rest over fast ones.
    assert found.time(310) / SECOND == pytest.approx(2e-3 + 40 * 3 / 4 + 3e-3 + 320 * 7 / 8 / 10)
    assert transfer("all-to-all", [(near, 8), (far, 4)]).time(310) / SECOND == pytest.approx(31e-3 + 310)


def test_the_least_of_several_costs() -> None:
    fast, wide, never = Transfer(1.0, 5.0), Transfer(10.0, 1.0), Transfer(11.0, 4.0)
    both = Transfer.best([wide, never, fast])
    assert both == Transfer(10.0, 1.0, (fast,))
    assert [both.time(n) for n in (0, 1, 2, 3)] == [0, 6, 11, 13]
    assert all(both.most(both.time(n)) == pytest.approx(n) for n in (1, 2, 3, 50))
    assert Transfer.best([fast]) == fast


def test_what_was_measured() -> None:
    fits = (Fit("all-gather", (2,), 1.0, 10.0), Fit("all-gather", (4,), 3.0, 30.0), Fit("all-gather", (4, 2), 9.0, 1.0))
    at = {n: measured(fits, "all-gather", (n,)) for n in (2, 3, 4, 8)}
    assert at[2] == Transfer(1.0 * SECOND, SECOND / 10)
    assert at[3] == Transfer(2.0 * SECOND, SECOND / 20)
    assert at[4] == Transfer(3.0 * SECOND, SECOND / 30)
    assert at[8] == Transfer(6.0 * SECOND, SECOND / 30)
    assert measured(fits, "all-gather", (4, 4)) == Transfer(18.0 * SECOND, SECOND)
    assert measured(fits, "all-gather", (2, 2)) is None
    assert measured(fits, "all-reduce", (2,)) is None


def test_other_ways_of_a_measured_collective() -> None:
    fits = tuple(Fit("all-reduce", (8, n), lat * n, bw) for n in (2, 4) for lat, bw in ((1.0, 1.0), (5.0, 2.0)))
    found = measured(fits, "all-reduce", (8, 3))
    assert found is not None
    assert found.time(1) / SECOND == pytest.approx(4)
    assert found.time(100) / SECOND == pytest.approx(15 + 50)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_grow_with_devices_and_bytes_and_keep_the_bound(name: str) -> None:
    machine = PRESETS[name]
    for kind, stride in itertools.product(KINDS, (1, 8)):
        for devices in (2, 4, 8, 16, 64):
            cost = machine.collective(kind, (Digit(devices, stride),))
            times = [cost.time(received(kind, whole, devices)) for whole in (1e3, 1e5, 1e7, 1e9)]
            assert times == sorted(times)
            assert all(
                t >= machine.fastest.time(received(kind, whole, devices)) * (1 - 1e-12)
                for t, whole in zip(times, (1e3, 1e5, 1e7, 1e9), strict=True)
            )


@pytest.mark.parametrize("name", PRESETS)
def test_a_message_between_any_devices_costs_no_less_than_one_between_known_devices(name: str) -> None:
    machine = PRESETS[name]
    for digit in (Digit(2, 1), Digit(4, 2), Digit(8, 8)):
        known, unknown = (machine.collective("collective-permute", d) for d in ((digit,), None))
        assert all(unknown.time(size) >= known.time(size) > 0 for size in (1, 1e4, 1e8))


@pytest.mark.parametrize("name", PRESETS)
def test_an_irregular_order_costs_steps_too(name: str) -> None:
    machine, digits = PRESETS[name], (Digit(8, 1),)
    assert all(machine.collective(k, digits, (3, 1, 2, 0)).time(1) >= machine.fastest.time(1) > 0 for k in KINDS)


def test_parts_of_a_group_in_a_torus_take_no_fewer_steps() -> None:
    link = Link(0.0, 1e9, 1.0, torus=3)
    for whole, parts in ((8, (4, 2)), (16, (8, 2)), (32, (2, 16)), (64, (4, 16))):
        taken = [transfer("all-gather", [(link, part)]).latency for part in parts]
        assert transfer("all-gather", [(link, whole)]).latency <= sum(taken)


def test_h100_reproduces_its_tables() -> None:
    machine = PRESETS["h100"]

    def time(kind: Kind, whole: float, *digits: Digit) -> float:
        k = 1
        for digit in digits:
            k *= digit.size
        return machine.collective(kind, digits).time(received(kind, whole, k)) / SECOND

    assert time("all-gather", 1e9, Digit(8, 1)) == pytest.approx(25e-6 + 1e9 / 368e9, rel=1e-3)
    assert time("all-reduce", 1e9, Digit(8, 1)) == pytest.approx(36e-6 + 1e9 / 206e9, rel=1e-3)
    assert time("all-gather", 1e6, Digit(64, 1)) == pytest.approx(148e-6 + 1e6 / 298e9, rel=1e-3)
    assert time("all-gather", 1e9, Digit(64, 1)) == pytest.approx(297e-6 + 1e9 / 390e9, rel=1e-3)
    assert time("all-gather", 1e9, Digit(8, 8)) == pytest.approx(150e-6 + 1e9 * 7 / 8 / 50e9, rel=1e-3)


def test_links_without_steps_cost_what_they_did() -> None:
    machine = Cluster(Links(((1, Link(1e-6, 1e9)), (8, Link(5e-6, 1e8)))))
    for kind in KINDS:
        assert machine.collective(kind, (Digit(64, 1),)) == Transfer(5e6, 1e4)
