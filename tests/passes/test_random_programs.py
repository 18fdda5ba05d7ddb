"""The heart: random programs on random meshes give, partitioned, the numbers of one device."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.clone import clone_module
from hloom.ir.module import Module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.runtime.evaluator import evaluate
from hloom.runtime.simulator import simulate
from hypothesis import HealthCheck, given, settings
from random_programs import inputs_of, programs

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def check(module: Module) -> None:
    inputs = inputs_of(module)
    expected = evaluate(module, inputs)
    local = partition(clone_module(module), PassContext(verify=True))
    # Poisoned padding: not-a-number in what is beyond the end of the inputs must reach no result.
    found = simulate(local, inputs, poison=True)
    # The text of both programs says all there is to them.
    reread = simulate(parse(local.to_text()), inputs)
    again = simulate(partition(parse(module.to_text())), inputs)
    assert len(found) == len(expected) == len(reread) == len(again)
    for a, b, c in zip(found, reread, again, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=module.to_text() + "\n" + local.to_text())


@settings(max_examples=200, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs())
def test_random_programs(module: Module) -> None:
    check(module)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(programs(max_ops=8))
def test_many_random_programs(module: Module) -> None:
    check(module)
