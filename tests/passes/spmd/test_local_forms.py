"""Local forms at all sizes: the samples, partitioned as if dividing what needs more than tiles were free.

For small arrays a gather is cheaper than what most local forms do, so that the choice by cost hardly ever tries them.
Here the cost of an assignment is beaten by every digit that it gives to a factor that does not simply pass through.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.sharding.mesh import IotaOrder, Mesh
from hloom.ir.sharding.sharding import TupleSharding
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.runtime import evaluate, simulate
from hloom.runtime.inputs.inputs import make_inputs
from hypothesis import HealthCheck, given, settings
from ops import samples_types
from ops.test_samples import SAMPLES
from programs.random.generate import inputs_of, programs
from support.compare import compare
from support.eager import EAGER
from support.random_shardings import random_sharding

MESHES = [
    Mesh((("x", 2),)),
    Mesh((("x", 4),)),
    Mesh((("x", 2), ("y", 2))),
    Mesh((("x", 4), ("y", 2)), IotaOrder((2, 4), (1, 0))),
    Mesh((("x", 3), ("y", 2)), (3, 1, 4, 0, 5, 2)),
    Mesh((("x", 2), ("y", 2), ("z", 2))),
]
OPCODES = [
    "reduce", "sort", "topk", "gather", "scatter", "dynamic-slice", "dynamic-update-slice", "fft",
    "batch-norm-training", "batch-norm-grad", "custom-call", "slice", "pad", "reverse", "concatenate", "reduce-window",
    "convolution", "select-and-scatter", "reshape",
]  # fmt: skip
def _annotate(module: Module, mesh: Mesh, rng: np.random.Generator) -> None:
    for instruction in module.entry:
        leaves = list(instruction.shape.leaves())
        if instruction.opcode != "get-tuple-element" and all(s.is_array for s in leaves):
            found = [random_sharding(rng, mesh, s) for s in leaves]
            instruction.sharding = TupleSharding(tuple(found)) if instruction.shape.is_tuple else found[0]


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _check(module: Module) -> None:
    inputs = inputs_of(module)
    expected = evaluate(module, inputs)
    local = partition(clone_module(module), PassContext(verify="each", chooser=EAGER))
    result = compare(simulate(local, inputs, poison=True), expected)
    assert result.equal, f"{result}\n{module.to_text()}\n{local.to_text()}"


@settings(max_examples=10, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs())
def test_random_programs_with_divided_factors(module: Module) -> None:
    _check(module)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(programs(max_ops=8))
def test_many_random_programs_with_divided_factors(module: Module) -> None:
    _check(module)


def _check_sample(text: str, meshes: Iterable[int]) -> None:
    whole = parse(text)
    if whole.num_partitions > 1 or not all(p.shape.is_array for p in whole.entry.parameters):
        return
    inputs = make_inputs([p.shape for p in whole.entry.parameters], seed=1)
    try:
        expected = evaluate(whole, inputs)
    except CompileError:
        return  # it has no meaning on one device either
    for trial in meshes:
        module = parse(text)
        _annotate(module, MESHES[trial], np.random.default_rng([zlib.crc32(text.encode()), trial]))
        local = partition(module, PassContext(verify="each", chooser=EAGER))
        result = compare(simulate(local, inputs, poison=True), expected)
        assert result.equal, f"{result}\n{module.to_text()}\n{local.to_text()}"


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", OPCODES)
def test_samples_with_divided_factors(opcode: str) -> None:
    """On one of the meshes, another one for the next sample."""
    typed = samples_types.SAMPLES.get(opcode, ())
    for number, text in enumerate(t for t in SAMPLES[opcode] if t not in typed):
        _check_sample(text, (number % len(MESHES),))


@pytest.mark.slow
@pytest.mark.parametrize("opcode", OPCODES)
def test_samples_with_divided_factors_on_all_meshes(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        _check_sample(text, range(len(MESHES)))
