"""Propagation does not depend on the order of instructions nor on names; it is idempotent and keeps annotations."""

from __future__ import annotations

import random
from pathlib import Path

import hloom
import pytest
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.sharding.digit import is_prefix
from hloom.ir.sharding.sharding import Sharding, leaf_shardings
from hloom.passes.base import PassContext, run_pass, run_pipeline
from hloom.passes.pipelines import PROPAGATE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.random.generate import programs

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]
EXAMPLES = Path(__file__).parents[3] / "examples"


def shuffled(module: Module, seed: int) -> tuple[Module, list[tuple[Instruction, Instruction]]]:
    """A copy with instructions in another topological order under other names, and the pairs of equal instructions."""
    chance = random.Random(seed)
    copy = clone_module(module)
    found: list[tuple[Instruction, Instruction]] = []
    for old, new in zip(module, copy, strict=True):
        pairs = list(zip(old, new, strict=True))
        new.reorder(topological(new, chance))
        for (_, theirs), number in zip(pairs, chance.sample(range(len(pairs)), len(pairs)), strict=True):
            new.rename(theirs, f"v{number}.{seed}")
        found += pairs
    return copy, found


def topological(computation: Computation, chance: random.Random) -> list[Instruction]:
    """The instructions in a random order in which operands come first."""
    missing = {i: len(i.operands) for i in computation}
    ready = [i for i, count in missing.items() if not count]
    order: list[Instruction] = []
    while ready:
        chosen = ready.pop(chance.randrange(len(ready)))
        order.append(chosen)
        for user, count in chosen.users.items():
            missing[user] -= count
            if not missing[user]:
                ready.append(user)
    return order


def by_name(module: Module) -> dict[str, str]:
    """The shardings of a propagated module."""
    return {i.name: str(i.sharding) for c in module for i in c}


def check_order(module: Module, seed: int) -> None:
    run_pipeline(PROPAGATE[:-1], module, PassContext())
    copy, pairs = shuffled(module, seed)
    for each in (module, copy):
        run_pass(PROPAGATE[-1], each, PassContext())
    for ours, theirs in pairs:
        assert str(ours.sharding) == str(theirs.sharding), f"{ours!r}, seed {seed}"


@settings(max_examples=25, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(max_ops=10), st.integers(0, 1000))
def test_order_and_names_do_not_matter(module: Module, seed: int) -> None:
    check_order(module, seed)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=QUIET)
@given(programs(max_ops=20), st.integers(0, 1000))
def test_order_and_names_never_matter(module: Module, seed: int) -> None:
    check_order(module, seed)


GROUPED = """HloModule grouped, num_partitions=6
ENTRY e {
  p = f32[6,12] parameter(0), sharding={devices=[3,1,2]<=[6] last_tile_dim_replicate}
  a = f32[6,12] exponential(p)
  like = f32[6,12] parameter(1), sharding={devices=[1,2,3]<=[6] last_tile_dim_replicate}
  x = f32[6,12] negate(a), sharding={devices=[1,2,3]<=[6] last_tile_dim_replicate}
  one = () custom-call(a), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="0 : i64"}
  two = () custom-call(like), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="0 : i64"}
  c = f32[6,12] add(a, p)
  ROOT d = (f32[6,12], f32[6,12]) tuple(c, x)
}"""


@pytest.mark.parametrize("seed", range(4))
def test_the_order_in_which_a_group_names_its_values_does_not_matter(seed: int) -> None:
    check_order(hloom.parse(GROUPED), seed)


@pytest.mark.parametrize(
    "name", ["mlp_train", pytest.param("transformer_train", marks=pytest.mark.slow), "transformer_scan_train"]
)
def test_order_and_names_do_not_matter_in_examples(name: str) -> None:
    check_order(hloom.parse((EXAMPLES / f"{name}.hlo").read_text()), 7)


@settings(max_examples=15, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(max_ops=8))
def test_a_second_propagation_changes_nothing(module: Module) -> None:
    once = hloom.propagate(module)
    again = clone_module(once)
    again.stage = Stage.GLOBAL
    assert by_name(hloom.propagate(again)) == by_name(once)


@settings(max_examples=4, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(max_ops=8))
def test_annotated_axes_stay(module: Module) -> None:
    for number, instruction in enumerate([i for c in module for i in c]):
        assert instruction.parent is not None
        instruction.parent.rename(instruction, f"v{number}")  # what is inlined into the entry keeps its name then
    found = {i.name: i for i in hloom.propagate(module).entry}
    for instruction in module.entry:
        after = found.get(instruction.name)
        if instruction.sharding is None or after is None:
            continue
        leaves = list(instruction.shape.leaves())
        pairs = zip(leaf_shardings(instruction.sharding, len(leaves)), leaf_shardings(after.sharding, len(leaves)),
                    leaves, strict=True)  # fmt: skip
        for said, got, shape in pairs:
            assert said is not None
            assert got is not None
            assert_kept(said, got, shape.rank)


def assert_kept(said: Sharding, got: Sharding, rank: int) -> None:
    before, after = said.tiling(rank), got.tiling(rank)
    assert before.order == after.order or before.is_replicated
    assert all(is_prefix(b, a) for b, a in zip(before.dims, after.dims, strict=True)), f"{said} became {got}"
