"""Sharding rules of Shardy on custom-calls: read, checked, used for propagation and partitioning."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.factors.sharding_rule import FactorKind
from hloom.ir.factors.shardy_rule import parse_shardy_rule
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition, propagate
from hloom.runtime import evaluate, simulate

WHOLE = "#sdy.op_sharding_rule<{}>"
CALL = """
HloModule m, num_partitions=4
ENTRY e {{
  x = f32[10,6] parameter(0), sharding={{devices=[4,1]<=[4]}}
  c = {result} custom-call(x), custom_call_target="{target}", frontend_attributes={{xla.sdy.sharding_rule="{rule}"}}
  ROOT n = {result} negate(c)
}}"""


def call(rule: str, result: str = "f32[10,6]", target: str = "test.shardy_rule") -> str:
    return CALL.format(rule=WHOLE.format(rule), result=result, target=target)


def test_compound_factors_and_kinds() -> None:
    rule = parse_shardy_rule(WHOLE.format(
        "([i, jk, l])->([i, j, k]) {i=8, j=2, k=3, l=5} reduction={l} need_replication={j} permutation={k}, custom"
    ))  # fmt: skip
    assert rule.operands == ((("i",), ("j", "k"), ("l",)),)
    assert rule.results == ((("i",), ("j",), ("k",)),)
    kinds = [rule.kind(name) for name in "ijkl"]
    assert kinds == [FactorKind.PASS, FactorKind.REPLICATE, FactorKind.REPLICATE, FactorKind.REDUCTION]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("([i, j])->([i]) {i=8, j=2}", "j"),  # in no result: its parts would be mixed up
        ("([i])->([i, j]) {i=8, j=2}", "j"),
        ("([i, j])->([i, j], [i]) {i=8, j=2}", "j"),
        ("([i, j])->([i, j]) {i=8, j=2} blocked_propagation={j}, custom", "j"),
    ],
)
def test_factors_that_must_be_whole(text: str, whole: str) -> None:
    rule = parse_shardy_rule(WHOLE.format(text))
    assert [n for n in rule.factors if rule.kind(n) is FactorKind.REPLICATE] == [whole]


def test_as_shardy_prints_it() -> None:
    """Shardy's own printer, with more factors than letters."""
    pytest.importorskip("jaxlib")
    from jaxlib.mlir import ir  # pyright: ignore
    from jaxlib.mlir.dialects import sdy  # pyright: ignore

    context: Any = ir.Context()
    sdy.register_dialect(context)
    with context:
        dim, tensor, get = (getattr(sdy, name).get for name in ("DimMappingAttr", "TensorMappingAttr",
                                                                "OpShardingRuleAttr"))  # fmt: skip
        operand = tensor([dim([n]) for n in range(20)])
        made = get([2] * 20, [operand], [tensor([dim([0]), dim([17, 18, 19])])], reduction_factors=list(range(1, 17)),
                   is_custom=True)
    rule = parse_shardy_rule(str(made))
    assert rule.results == ((("i",), ("z", "z_1", "z_2")),)
    assert len(rule.factors) == 20
    assert sum(rule.kind(n) is FactorKind.REDUCTION for n in rule.factors) == 16


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("([i, j])->([i, j]) {i=10, j=7}", "operand 0 dimension 1 has 6 elements, the rule has j=7 there"),
        ("([i])->([i, j]) {i=10, j=6}", "operand 0 is f32[10,6], the rule gives it 1 dimensions"),
        ("([i, a])->([i, j]) {i=10, j=6}", "'a' is not a dimension"),
        ("([i, j])->([i, j]) {i=10, j=6} reduction={j}", "the reduction factor j must occur in operands only"),
        ("([i, j])->([i, j]) {i=10, j=6} else={j}", "else is not one of"),
        ("([i, j])->([i, j]) {i=10, j=6} blocked_propagation={k}", "no dimension has the factor k"),
        ("([i, j], [i])->([i, j]) {i=10, j=6}", "it has 2 operands, but the op has 1"),
    ],
)
def test_mistakes_have_a_place(rule: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        hloom.partition(hloom.parse(call(rule)))
    assert message in caught.value.diagnostics[0].message
    assert "5:3: error: sharding rule" in str(caught.value)


def test_no_rule_at_all() -> None:
    with pytest.raises(CompileError, match=r"expected #sdy\.op_sharding_rule"):
        hloom.partition(hloom.parse(call("([i, j])->([i, j])").replace("#sdy.", "#")))


def doubled(x: Any) -> Any:
    return x * 2


def summed(x: Any) -> Any:
    return x.sum(0)


@pytest.mark.parametrize(
    ("rule", "result", "tile", "function"),
    [
        ("([i, j])->([i, j]) {i=10, j=6}, custom", "f32[10,6]", (3, 6), doubled),
        ("([i, j])->([j]) {i=10, j=6} reduction={i}, custom", "f32[6]", (3, 6), summed),
        ("([i, j])->([i, j]) {i=10, j=6} need_replication={i}, custom", "f32[10,6]", (10, 6), doubled),
    ],
)
def test_partitioned_by_the_rule_of_the_program(rule: str, result: str, tile: tuple[int, ...], function: Any) -> None:
    """A target of which only the meaning is known is run on tiles as the program says."""
    hloom.custom_call("test.shardy_rule", replace=True)(function)
    text = call(rule, result)
    context = PassContext(verify="each")
    local = partition(hloom.parse(text), context)
    (made,) = (i for i in local.entry if i.opcode == "custom-call")
    assert made.operands[0].shape.dims == tile
    assert "xla.sdy" not in local.to_text()
    assert not [d for d in context.diagnostics.found if "no sharding rule" in d.message]
    inputs = [np.arange(60, dtype=np.float32).reshape(10, 6)]
    for ours, expected in zip(simulate(local, inputs, poison=True), evaluate(hloom.parse(text), inputs), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_propagation_goes_through_the_rule() -> None:
    module = propagate(hloom.parse(call("([i, j])->([j, i]) {i=10, j=6}, custom", "f32[6,10]")))
    assert str(module.entry.root.sharding) == "{devices=[1,4]<=[4]}"


def test_equal_calls_with_other_rules() -> None:
    """Choices are remembered by rule: the second call needs everything whole."""
    first = "([i, j])->([i, j]) {i=10, j=6}, custom"
    second = "([i, j])->([i, j]) {i=10, j=6} need_replication={i, j}, custom"
    line = call(second).splitlines()[4].replace("  c = ", "  d = ")
    text = call(first).replace("  ROOT n = f32[10,6] negate(c)", f"{line}\n  ROOT n = f32[10,6] add(c, d)")
    local = hloom.partition(hloom.parse(text))
    assert sorted(i.shape.dims for i in local.entry if i.opcode == "custom-call") == [(3, 6), (10, 6)]
