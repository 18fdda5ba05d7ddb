"""Every op, partitioned: the samples of all ops under many random shardings give the numbers of one device.

Parameters, results and some values in between are sharded at random on several meshes, evenly or not; the padding of
inputs is poisoned.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.factors.sharding_rule import FactorKind, ShardingRule, check_rule
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS, OpCall
from hloom.ir.sharding.mesh import IotaOrder, Mesh
from hloom.ir.sharding.sharding import TupleSharding
from hloom.passes.base import PassContext, Rules
from hloom.passes.pipelines import partition
from hloom.runtime import evaluate, simulate
from hloom.runtime.inputs.inputs import make_inputs
from ops.test_samples import SAMPLES
from support.compare import compare
from support.random_shardings import random_sharding

MESHES = [
    Mesh((("x", 2),)),
    Mesh((("x", 2), ("y", 2))),
    Mesh((("x", 4), ("y", 2)), IotaOrder((2, 4), (1, 0))),
    Mesh((("x", 3),)),
    Mesh((("x", 2), ("y", 3)), (3, 1, 4, 0, 5, 2)),
]
TRIALS = 6
_FEW = 4  # samples of an op; those after them differ in types and sizes


def _annotate(module: Module, mesh: Mesh, rng: np.random.Generator) -> None:
    """Shards parameters, the root, and one in four of the other values of the entry."""
    entry = module.entry
    for instruction in entry:
        leaves = list(instruction.shape.leaves())
        if not all(s.is_array for s in leaves) or instruction.opcode == "get-tuple-element":
            continue
        if instruction.opcode == "parameter" or instruction is entry.root or rng.integers(4) == 0:
            found = [random_sharding(rng, mesh, s) for s in leaves]
            instruction.sharding = TupleSharding(tuple(found)) if instruction.shape.is_tuple else found[0]


def _is_alone(module: Module) -> bool:
    return module.num_partitions == module.replica_count == 1


def _partitioned(module: Module, rules: Rules) -> Module | None:
    """The LOCAL module; None if the partitioner says that it cannot do this."""
    try:
        return partition(module, PassContext(verify="each", rules=rules))
    except CompileError as error:
        refusals = ("cannot be partitioned", "not partitioned yet")
        if all(any(r in d.message for r in refusals) for d in error.diagnostics):
            return None
        raise


def _check(text: str, trials: Iterable[int], rules: Rules = MappingProxyType({})) -> None:
    whole = parse(text)
    if not _is_alone(whole) or not all(s.is_array for p in whole.entry.parameters for s in p.shape.leaves()):
        return
    inputs = make_inputs([p.shape for p in whole.entry.parameters], seed=1)
    try:
        expected = evaluate(whole, inputs)
    except CompileError:
        return  # it has no meaning on one device either
    for trial in trials:
        rng = np.random.default_rng([zlib.crc32(text.encode()), trial])
        module = parse(text)
        _annotate(module, MESHES[trial % len(MESHES)], rng)
        local = _partitioned(module, rules)
        if local is None:
            continue
        result = compare(simulate(local, inputs, poison=True), expected)
        assert result.equal, f"{result}\n{module.to_text()}"


@pytest.mark.parametrize("opcode", SAMPLES)
def test_samples_partitioned(opcode: str) -> None:
    """One of the trials, other ones for other samples. Element-wise ops have one rule, which a sample shows."""
    texts = SAMPLES[opcode]
    for text in texts[:1] if OPS[opcode].is_elementwise else texts[:_FEW] + texts[_FEW::2]:
        _check(text, (zlib.crc32(text.encode()) % TRIALS,))


@pytest.mark.slow
@pytest.mark.parametrize("opcode", SAMPLES)
def test_samples_partitioned_in_more_ways(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        _check(text, range(TRIALS))


def _wrong_rule(call: OpCall[Any], rule: ShardingRule) -> ShardingRule:
    """The rule of an op with factors of other kinds, as far as they fit the shapes."""
    rng = np.random.default_rng(zlib.crc32(str(call).encode()))
    for number, factor in enumerate(rule.factors):
        kind = list(FactorKind)[rng.integers(len(FactorKind))]
        factors = (*rule.factors[:number], replace(factor, kind=kind), *rule.factors[number + 1:])
        changed = replace(rule, factors=factors)
        rule = rule if check_rule(changed, call.operands, tuple(call.shape.leaves())) else changed
    return rule


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", [opcode for opcode in SAMPLES if not OPS[opcode].is_elementwise])
def test_wrong_rules_give_right_numbers(opcode: str) -> None:
    """Rules from outside may forbid ways to divide an op, but none that they allow beyond the op's own is taken."""
    rules: Rules = {opcode: lambda call: _wrong_rule(call, OPS[opcode].sharding_rule(call))}
    for text in SAMPLES[opcode][:2]:
        _check(text, (zlib.crc32(text.encode()) % TRIALS,), rules)
