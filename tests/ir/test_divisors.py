"""Divisors of small numbers against all candidates, and of the largest numbers of devices."""

from __future__ import annotations

import math

import hloom
import pytest
from hloom.ir.divisors import divisors
from hloom.passes.schedule.rewrites.scaled import block_size
from support.command_line import EXAMPLES


def test_small_numbers_have_all_their_divisors_in_order() -> None:
    for number in range(1, 500):
        assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


def test_the_largest_numbers_of_devices_are_divided_at_once() -> None:
    assert divisors(2**31 - 1) == (1, 2**31 - 1)
    assert math.prod(divisors(10**9)) == 10 ** (9 * 50)  # 100 divisors, in pairs


def test_blocks_with_scales_are_the_largest_divisors_of_a_few_hundred() -> None:
    assert [block_size(n) for n in (0, 31, 32, 257, 512, 3 * 337, 2**31 - 1)] == [0, 0, 32, 257, 256, 337, 2**31 - 1]


def test_a_plan_for_very_many_devices_takes_no_longer_than_asked() -> None:
    """Parts of an axis were searched among all numbers up to its size, for minutes, and groups that cannot be listed
    were an internal error.
    """
    pytest.importorskip("highspy")
    plan = hloom.plan(hloom.load(EXAMPLES / "mlp_train.hlo"), "tpu-v4", devices=10**9, seconds=5)
    assert 0 < plan.seconds < 1e-6
