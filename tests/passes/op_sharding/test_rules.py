"""Sharding rules from outside: the partitioner divides nothing that they, or the op's own rule, forbid."""

from __future__ import annotations

from collections.abc import Callable

import hloom
import pytest
from hloom.runtime.check.simulated import check_simulated
from hloom.runtime.inputs.inputs import inputs_for_module

PRODUCT = """ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[1,4]<=[4]}
  y = f32[64,64] parameter(1), sharding={devices=[4,1]<=[4]}
  ROOT z = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
SORT = """less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[65536] parameter(0), sharding={devices=[4]<=[4]}
  ROOT r = f32[65536] sort(x), dimensions={0}, to_apply=less, sharding={devices=[4]<=[4]}
}"""
# A dimension of two factors, of which the given rule replicates one.
RESHAPE = """ENTRY e {
  x = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT r = f32[64] reshape(x)
}"""
CASES = {
    "whole sums": (PRODUCT, "dot", "([i k], [k j]) -> [i j] replicate={k}", "all-reduce", False),
    "sums of parts": (PRODUCT, "dot", "([i k], [k j]) -> [i j] reduction={k}", "all-reduce", True),
    "sum said to need no exchange": (PRODUCT, "dot", "([i k], [k j]) -> [i j]", "all-reduce", True),
    "text for other shapes": (PRODUCT, "dot", "([i k]) -> [i k] replicate={i,k}", "all-reduce", True),
    "sorted whole": (SORT, "sort", "([j]) -> [j] replicate={j}", "all-gather", True),
    "sorted in parts": (SORT, "sort", "([j]) -> [j] permutation={j}", "all-gather", False),
    "reshaped by the major factor": (RESHAPE, "reshape", "([i j]) -> [(i j)] replicate={j}", "all-gather", False),
    "reshaped by the minor factor": (RESHAPE, "reshape", "([i j]) -> [(i j)] replicate={i}", "all-gather", True),
}


@pytest.mark.parametrize("name", CASES)
def test_given_rules_steer_the_partitioner(name: str) -> None:
    text, opcode, rule, kind, has_kind = CASES[name]
    program = hloom.parse(text)
    local = hloom.partition(program, rules={opcode: rule})
    if opcode == "sort":  # of more numbers than a proof sorts quickly
        assert check_simulated(program, local.module, inputs_for_module(program)).passed
    else:
        assert hloom.prove(program, local).outcome in ("equal", "agrees")
    assert (kind in {c.kind for c in hloom.collectives(local)}) == has_kind


@pytest.mark.parametrize("run", [hloom.propagate, hloom.partition, hloom.compile])
def test_a_rule_for_an_unknown_opcode_is_an_error(run: Callable[..., object]) -> None:
    module = hloom.parse("ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  ROOT y = f32[8] negate(x) }")
    with pytest.raises(hloom.CompileError, match=r"(?s)no opcode 'negat'.*did you mean 'negate'"):
        run(module, rules={"negat": "([i]) -> [i]"})
