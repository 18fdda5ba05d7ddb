"""The speed of native code, fitted to times of programs whose counts are known."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.machine_file import MachineFile, read_machine
from hloom.cost.machine_text import machine_text
from hloom.cost.native_fit import fit_native
from hloom.cost.native_speed import APART, HIDING, NATIVE, NativeSpeed

WANTED = NativeSpeed(operation=1.5e-10, move=3e-10, tile_multiply=2e-11, near=4e-10, run=1e-5, second_cache=2e6)


def _programs(count: int) -> list[list[tuple[float, dict[str, float]]]]:
    """Returns programs of a small and a large op, which runs several times and whose bytes come while it computes, or
    late.
    """
    random = np.random.default_rng(3)
    found: list[list[tuple[float, dict[str, float]]]] = []
    for n, m in random.integers(1, 10**6, (count, 2)):
        work = {"operation": float(n), "move": float(random.integers(1, 10**6)), "tile_multiply": float(m)}
        found.append([(1.0, {"run": 1.0, "move": 100.0}), (3.0, {**work, "near": float(random.integers(1, 10**7))})])
    return found


def test_times_of_a_speed_give_the_speed() -> None:
    programs = _programs(24)
    found, error = fit_native(programs, [WANTED.of_run(ops) for ops in programs])
    assert error < 1e-3
    assert [getattr(found, name) for name in NATIVE] == pytest.approx(
        [getattr(WANTED, name) for name in NATIVE], rel=0.01, abs=1e-14
    )


def test_a_share_of_the_computing_hides_bytes() -> None:
    """Bytes that come within this share of an op's computing take no time, others what is left; Python hides none."""
    computing, near = WANTED.seconds({"move": 1e6}), WANTED.seconds({"near": 1e6})
    hidden = HIDING * computing
    assert near > hidden > 0
    assert WANTED.seconds({"move": 1e6, "near": 1e6}) == pytest.approx(computing - hidden + near)
    assert WANTED.seconds({"move": 1e6, "near": 1e6 * hidden / near}) == pytest.approx(computing)
    assert WANTED.seconds({"run": 1e3, "near": 1e6}) == pytest.approx(WANTED.seconds({"run": 1e3}) + near)


def test_operations_of_long_rows_that_follow_their_bytes_hide_nothing() -> None:
    work = {"operation": 1e5, "near": 1e5}
    apart = WANTED.seconds({**work, APART: 4e4})
    assert apart - WANTED.seconds(work) == pytest.approx(HIDING * 4e4 * WANTED.operation)


def test_nothing_is_negative_and_too_fast_is_as_wrong_as_too_slow() -> None:
    """Two programs that do the same in times that differ by four are forecast halfway between, by factors."""
    found, error = fit_native([[(1.0, {"move": 10.0})], [(2.0, {"move": 5.0})]], [1.0, 4.0])
    assert 10 * found.move == pytest.approx(2.0, rel=1e-3)
    assert error == pytest.approx(0.75, rel=1e-2)  # the mean of twice and half
    falls, _ = fit_native([[(1.0, {"call": 1.0})], [(1.0, {"call": 1.0, "run": 1.0})]], [2.0, 1.0])
    assert falls.run == 0.0
    assert "move" in falls.unmeasured


def test_a_machine_file_holds_the_speed() -> None:
    sources = {f"native.{name}": "measured" for name in NATIVE}
    text = machine_text(MachineFile("ours", Cluster(native_speed=WANTED), sources))
    assert 'operation = { value = "0.15 ns", source = "measured" }' in text
    assert read_machine(text).machine.native == WANTED
    assert not Cluster().native.is_known
