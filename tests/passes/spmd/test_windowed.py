"""Windowed einsum: contractions in steps, with what would be gathered or scattered on its way around a ring."""

from __future__ import annotations

import itertools
from collections import Counter

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.simulator import simulate

MESH = "mesh['a'=2,'b'=4]"
PASSES = "synchronous,call-inliner,dce,propagate,spmd-partition{windowed=1},cse,dce"


def windowed(text: str) -> Module:
    module = hloom.parse(text)
    run_pipeline(parse_pipeline(PASSES), module, PassContext(verify="each"))
    return module


def check(text: str) -> Counter[str]:
    """Runs a program both ways; the opcodes of the partitioned one."""
    module = hloom.parse(text)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    local = windowed(text)
    for ours, expected in zip(simulate(local, inputs, poison=True), hloom.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    return Counter(i.opcode for computation in local for i in computation)


def dot(left: str, right: str, result: str, sizes: tuple[int, int, int] = (16, 64, 32)) -> str:
    m, k, n = sizes
    return f"""ENTRY e {{
  x = f32[{m},{k}] parameter(0), sharding={{{MESH}, {left}}}
  w = f32[{k},{n}] parameter(1), sharding={{{MESH}, {right}}}
  ROOT p = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={{{MESH}, {result}}}
}}"""


def test_gathered_operand() -> None:
    """Weights divided along their columns travel past the rows."""
    found = check(dot("[{'a'}, {}]", "[{}, {'b'}]", "[{'a'}, {}]", (256, 64, 8)))
    assert (found["collective-permute"], found["dot"]) == (3, 4)
    assert not found["all-gather"]


def test_gathered_contraction() -> None:
    """Weights divided along the contraction (FSDP) travel, and the parts are summed."""
    found = check(dot("[{'a','b'}, {}]", "[{'a'}, {}]", "[{'a','b'}, {}]", (512, 64, 32)))
    assert (found["collective-permute"], found["dot"]) == (1, 2)
    assert not found["all-gather"]


def test_scattered_result() -> None:
    found = check(dot("[{}, {'b'}]", "[{'b'}, {}]", "[{'b'}, {}]").replace("'a'=2,", ""))
    assert (found["collective-permute"], found["dot"]) == (3, 4)
    assert not found["reduce-scatter"]


def test_uneven_sizes_go_the_usual_way() -> None:
    found = check(dot("[{}, {'b'}]", "[{'b'}, {}]", "[{'b'}, {}]", (14, 62, 30)))
    assert (found["collective-permute"], found["dot"]) == (0, 1)


def test_off_by_default() -> None:
    local = hloom.partition(hloom.parse(dot("[{}, {'b'}]", "[{'b'}, {}]", "[{'b'}, {}]")))
    assert [i.opcode for i in local.entry].count("dot") == 1


PLACES = ["[{}, {}]", "[{'a'}, {}]", "[{}, {'a'}]", "[{'b'}, {}]", "[{}, {'b'}]", "[{'a','b'}, {}]", "[{'b'}, {'a'}]"]


@pytest.mark.share(2)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("left", PLACES)
def test_all_pairs(left: str, step: int) -> None:
    """A third of them by default, others for the next place."""
    stepped = 0
    for right, result in list(itertools.product(PLACES, PLACES))[PLACES.index(left) % step :: step]:
        stepped += check(dot(left, right, result, (16, 32, 24)))["dot"] > 1
    assert stepped
