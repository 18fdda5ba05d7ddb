"""The heart: random programs on random meshes give, partitioned, the numbers of one device."""

from __future__ import annotations

import random

import pytest
from hloom.frontends import parse
from hloom.ir.graph.module import Module
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from programs.random.generate import REGIONS, inputs_of, programs, special_inputs_of
from shrink import partition_fails, shrink
from support.partition_check import difference

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def check(module: Module, windowed: int = 0) -> None:
    found = difference(module, inputs_of(module), windowed)
    assert found is None, f"{found}\n{module.to_text()}"


@settings(max_examples=40, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs(module: Module) -> None:
    check(module)


@settings(max_examples=12, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs())
def test_random_programs_as_text(module: Module) -> None:
    """The text of the program says all there is to it, its shardings too."""
    check(parse(module.to_text()))


@settings(max_examples=15, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs())
def test_random_programs_with_rings(module: Module) -> None:
    check(module, windowed=1)


@settings(max_examples=12, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs_of_special_numbers(module: Module) -> None:
    """Zeros keep their signs, NaN and infinities their places."""
    found = difference(module, special_inputs_of(module), signs=True)
    assert found is None, f"{found}\n{module.to_text()}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_programs(part: int, request: pytest.FixtureRequest) -> None:
    """10,000 programs in all; the parts may run side by side. One that fails is made small by `shrink`."""
    said = str(request.config.getoption("--hypothesis-seed"))
    number = int(said) + part if said.isdigit() else random.getrandbits(32)
    failing: list[tuple[Module, int]] = []

    @seed(number)
    @settings(max_examples=2500, deadline=None, suppress_health_check=QUIET, database=None, phases=[Phase.generate])
    @given(programs(max_ops=8, outer=REGIONS), st.sampled_from([0, 0, 0, 1]))
    def many(module: Module, windowed: int) -> None:
        failing.append((module, windowed))
        check(module, windowed)
        failing.pop()

    try:
        many()
    except Exception as error:
        module, windowed = failing[-1]  # those before it were refused by an assumption
        small = shrink(module, partition_fails(windowed))
        pytest.fail(f"seed {number}, windowed {windowed}: {error}\nmade small:\n{small.to_text()}")
