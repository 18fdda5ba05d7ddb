"""Programs and their partitioned forms over a field: right ones are equal, planted mistakes are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import hloom
import numpy as np
import pytest
from hloom import prove
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.types.literal import Literal
from hloom.passes.annotating.remesh import remesh
from hypothesis import HealthCheck, given, settings
from programs.random.generate import REGIONS, programs
from support.command_line import EXAMPLES
from support.partition_check import partitioned

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@cache
def example(name: str) -> Module:
    return hloom.load(EXAMPLES / f"{name}.hlo")


@cache
def local_example(name: str) -> Module:
    return hloom.partition(example(name))


@pytest.mark.parametrize("mesh", [{"x": 3, "y": 5}, {"x": 5, "y": 2}, {"x": 1, "y": 3}])
def test_uneven_tiles_are_equal(mesh: dict[str, int]) -> None:
    module = clone_module(example("mlp_named"))
    remesh(module, mesh)
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "equal", verdict


@settings(max_examples=15, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs_are_equal(module: Module) -> None:
    _check_random(module)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=QUIET)
@given(programs(outer=REGIONS))
def test_a_thousand_random_programs_are_equal(module: Module) -> None:
    _check_random(module)


def _check_random(module: Module) -> None:
    verdict = prove(module, partitioned(module), trials=2)
    assert verdict.outcome == "unproved" if verdict.uncovered else verdict.agrees, f"{verdict}\n{module.to_text()}"


def _nearest(array: Any) -> Any:
    return np.nextafter(array, array.dtype.type(np.inf))


@pytest.mark.parametrize("name", ["mlp_named", pytest.param("mlp_train", marks=pytest.mark.slow)])
def test_constants_off_by_one_unit_in_the_last_place_are_found(name: str) -> None:
    local = local_example(name)
    count = 0
    for computation in local:
        for i in computation:
            array = getattr(getattr(i.attributes, "literal", None), "array", np.zeros(()))
            if array.dtype != np.float32 or not array.any() or not np.isfinite(array).all():
                continue
            bad = _with_constant(local, computation.name, i.name, _nearest)
            assert prove(example(name), bad).outcome == "differs", i.name
            count += 1
    assert count


def _with_constant(module: Module, computation: str, name: str, change: Callable[[Any], Any]) -> Module:
    copy = clone_module(module)
    instruction = next(c for c in copy if c.name == computation).find(name)
    assert instruction is not None
    attributes: Any = instruction.attributes
    instruction.attributes = replace(attributes, literal=Literal(change(attributes.literal.array)))
    return copy


def _proved(text: str, wrong: tuple[str, str] | None = None) -> Any:
    module = hloom.parse(text)
    local = hloom.partition(module)
    if wrong is not None:
        assert wrong[0] in local.to_text()
        local = hloom.parse(local.to_text().replace(*wrong, 1))
    return prove(module, local)


ROWS = """HloModule m
ENTRY e {{ x = f32[10] parameter(0), sharding={{devices=[4]<=[4]}}
  one = f32[] constant(1)  ones = f32[10] broadcast(one), dimensions={{}}
  ROOT y = {} }}"""


def test_what_is_undefined_on_both_sides_is_unproved() -> None:
    verdict = _proved(ROWS.format("f32[10] divide(ones, zeros)").replace("ones =", """zero = f32[] constant(0)
  zeros = f32[10] broadcast(zero), dimensions={}  ones ="""))
    assert verdict.outcome == "unproved"
    assert str(verdict) == "unproved: output 0 at [0]: undefined in every trial (10 elements)"


def test_an_op_that_says_nothing_is_unproved() -> None:
    rule = 'frontend_attributes={xla.sdy.sharding_rule="#sdy.op_sharding_rule<([i])->([i]) {i=10}, custom>"}'
    verdict = _proved(ROWS.format(f'f32[10] custom-call(x), custom_call_target="other", {rule}'))
    assert verdict.outcome == "unproved"
    assert verdict.uncovered[0].program == "original"
    assert str(verdict).startswith("unproved: custom-call y of the original program (<string>:")


def test_the_first_element_that_differs_is_named() -> None:
    verdict = _proved(ROWS.format("f32[10] multiply(x, ones)"), ("constant(1)", "constant(1.0000001)"))
    assert verdict.outcome == "differs"
    assert str(verdict).startswith("differs: output 0 at [0]: another value (10 elements); first wrong: broadcast ones")


def test_integers_beyond_their_range_are_tried() -> None:
    """A slice begins at the last place it can where its index is too large."""
    text = """HloModule m
ENTRY e { x = f32[10] parameter(0), sharding={devices=[2]<=[2]}  i = s32[] parameter(1)
  n = s32[] constant(8)  k = s32[] REMAINDER
  ROOT y = f32[3] dynamic-slice(x, k), dynamic_slice_sizes={3} }"""
    module = hloom.parse(text.replace("REMAINDER", "copy(i)"))
    wrong = hloom.partition(hloom.parse(text.replace("REMAINDER", "remainder(i, n)")))
    assert prove(module, hloom.partition(module)).outcome == "agrees"
    assert prove(module, wrong).outcome == "differs"


def test_comparisons_that_differ_where_numbers_are_equal_are_told_apart() -> None:
    verdict = _proved(
        ROWS.format("f32[10] select(more, x, ones)").replace("ROOT", """more = pred[10] compare(x, ones), direction=GT
  ROOT"""), ("direction=GT", "direction=GE"),
    )  # fmt: skip
    assert verdict.outcome == "differs"


@pytest.mark.parametrize("wrong", ["maximum", "minimum"])
def test_extremes_in_place_of_sums_of_one_value_are_found(wrong: str) -> None:
    """A tile is gathered by an all-reduce: the other devices add 0, the end of an order."""
    text = """HloModule m, num_partitions=4
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  one = s32[] constant(1)  zero = f32[] constant(0)
  zeros = f32[8] broadcast(zero), dimensions={}  id = u32[] partition-id()  i = s32[] convert(id)
  mine = pred[] compare(i, one), direction=EQ  part = f32[8] select(mine, x, zeros)
  ROOT y = f32[8] all-reduce(part), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true,
    to_apply=sum }"""
    original = hloom.parse("""HloModule m
ENTRY e { x = f32[32] parameter(0)  ROOT y = f32[8] slice(x), slice={[8:16]} }""")
    for seed in range(8):
        assert prove(original, hloom.parse(text), seed=seed).outcome == "equal"
        bad = hloom.parse(text.replace("add(a, b)", f"{wrong}(a, b)"))
        assert prove(original, bad, seed=seed).outcome == "differs"


def test_no_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        prove(example("mlp_named"), local_example("mlp_named"), trials=0)
