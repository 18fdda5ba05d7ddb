"""Sharding rules as text: reading, printing, sizes from shapes, and messages that show the place."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.factors.rule_text import parse_rule, rule_text
from hloom.ir.factors.sharding_rule import FactorKind, Monoid, ShardingRule, check_rule
from hloom.ir.graph.op import ShapeError
from ops.build import shapes
from support.op_samples import all_samples


def bound(text: str, operands: str, results: str) -> ShardingRule:
    return parse_rule(text).rule(shapes(operands), shapes(results))


def test_sizes_come_from_the_shapes() -> None:
    rule = bound("([i k], [k j]) -> [i j] reduction={k}", "f32[8,32] f32[32,16]", "f32[8,16]")
    assert rule_text(rule) == "([i j], [j k]) -> [i k] {i=8, j=32, k=16} reduction={j}"
    assert [f.size for f in rule.factors] == [8, 32, 16]
    assert [f.kind for f in rule.factors] == [FactorKind.PASS, FactorKind.REDUCTION, FactorKind.PASS]
    assert rule.monoid is Monoid.ADD


def test_commas_several_results_and_the_other_kinds() -> None:
    text = "([batch, i], [1]) -> ([batch], [i j]) replicate={i, j}"
    assert rule_text(bound(text, "f32[2,3] f32[1]", "f32[2] f32[3,5]")) == (
        "([i j], [1]) -> ([i], [j k]) {i=2, j=3, k=5} need_replication={j, k}"
    )
    moved = bound("([i]) -> [i] permutation={i}", "f32[9]", "f32[4]")
    assert rule_text(moved) == "([i]) -> [i] {i=9} permutation={i}"
    assert bound("([i]) -> [] reduction={i} monoid=maximum", "f32[9]", "f32[]").monoid is Monoid.MAXIMUM


def test_compound_dimensions_have_their_sizes_from_elsewhere_or_from_the_text() -> None:
    assert rule_text(bound("([i j]) -> [(i j)]", "f32[6,4]", "f32[24]")) == "([i j]) -> [(i j)] {i=6, j=4}"
    assert rule_text(bound("([(i j)]) -> [i]{i=6} replicate={j}", "f32[24]", "f32[6]")) == (
        "([(i j)]) -> [i] {i=6, j=4} need_replication={j}"
    )
    with pytest.raises(ShapeError, match="the sizes of i j are not known") as error:
        bound("([(i j)]) -> [(i j)]", "f32[24]", "f32[24]")
    assert error.value.help == "write them, as in {i=2}"


def test_factors_of_size_one_vanish() -> None:
    assert rule_text(bound("([b i]) -> [b i]", "f32[1,3]", "f32[1,3]")) == "([1 i]) -> [1 i] {i=3}"


@pytest.mark.parametrize("opcode", ["dot", "reduce", "reshape", "broadcast", "custom-call", "gather", "slice"])
def test_what_is_printed_is_read(opcode: str) -> None:
    for sample in all_samples()[opcode]:
        for i in (i for c in parse(sample) for i in c if i.opcode == opcode):
            operands, results = [o.shape for o in i.operands], list(i.shape.leaves())
            if all(s.is_array for s in operands):
                rule = i.op.sharding_rule(i.call)
                again = parse_rule(rule_text(rule)).rule(operands, results)
                assert check_rule(again, operands, results) is None
                assert (again.factors, again.operands, again.results) == (rule.factors, rule.operands, rule.results)
                combines = rule.monoid is not None and any(f.kind is FactorKind.REDUCTION for f in rule.factors)
                assert again.monoid is rule.monoid or not combines


@pytest.mark.parametrize(
    ("operands", "results", "message"),
    [
        ("f32[2]", "f32[2]", "it has 2 operands, but the op has 1"),
        ("f32[2,3] f32[4]", "f32[2]", "operand 1 is f32[4], the rule gives it 2 dimensions"),
        ("f32[2,3] f32[5,3]", "f32[2]", "operand 1 dimension 0 has 5 elements, the rule has b=2 there"),
        ("f32[2,3] f32[2,3]", "f32[4]", "result 0 dimension 0 has 4 elements, the rule has b=2 there"),
    ],
)
def test_rules_that_do_not_fit(operands: str, results: str, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        bound("([b i], [b i]) -> [b] replicate={i}", operands, results)
    assert message in error.value.message


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("[i] -> [i]", 1, "expected ("),
        ("([i]) [i]", 7, "expected ->"),
        ("([i) -> [i]", 4, "expected the name of a factor"),
        ("([i i]) -> [i]", 7, "a factor occurs twice in one value"),
        ("([i]) -> [i] {i=x}", 17, "expected a size"),
        ("([i]) -> [i] reduction={j}", 27, "no dimension has the factor j"),
        ("([i]) -> [i] reduce={i}", 21, "reduce is not one of reduction, need_replication"),
        ("([i]) -> [] reduction={i} monoid=mean", 34, "expected one of add, multiply"),
        ("([i]) -> [i] replicate={i} permutation={i}", 43, "a factor has two kinds"),
        ("([i]) -> [i] & [i]", 14, "unexpected character"),
    ],
)
def test_texts_that_are_no_rules(text: str, column: int, message: str) -> None:
    with pytest.raises(CompileError) as error:
        parse_rule(text, "rule of mine")
    first, shown, caret, help = str(error.value).splitlines()
    assert first.startswith(f"rule of mine:1:{column}: error: {message}")
    assert shown == f"  1 | {text}"
    assert caret.index("^") == column + 5
    assert help.startswith("  help: a rule looks like")
