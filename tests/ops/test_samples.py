"""Every op has samples; every sample parses, verifies, prints, has a rule that fits, and means what XLA says it means.

Samples are collected from all `samples_*.py` beside this file: `SAMPLES` maps an opcode to texts of modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.factors.sharding_rule import check_rule
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS
from hloom.ir.tools.verifier import verify
from hloom.runtime import evaluate
from ops import samples_types
from ops.oracle import Array, compared_as, input_kind, mismatch, random_inputs, runs_on_xla
from ops.together import together
from support.op_samples import few
from support.xla_runner import compile_text


def _collect() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("samples_*.py")):
        samples: dict[str, list[str]] = importlib.import_module(f"ops.{file.stem}").SAMPLES
        for opcode, texts in samples.items():
            found.setdefault(opcode, []).extend(texts)
    return found


SAMPLES = _collect()
# These stand in every sample.
_EVERYWHERE = {"parameter"}
# XLA's quick emitters compute these less exactly.
INEXACT = {"cbrt", "convert", "gather", "power", "reduce-precision"}


def _alone(module: Module) -> bool:
    return module.num_partitions == module.replica_count == 1


def test_every_op_has_a_sample() -> None:
    assert sorted(set(OPS) - set(SAMPLES) - _EVERYWHERE) == []


def test_every_sample_is_of_an_op() -> None:
    assert sorted(set(SAMPLES) - set(OPS)) == []


@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_text_and_rule(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        module = parse(text)
        assert any(i.opcode == opcode for c in module for i in c), text
        assert verify(module) == [], text
        printed = module.to_text()
        assert parse(printed).to_text() == printed
        for i in (i for c in module for i in c if all(o.shape.is_array for o in i.operands)):
            rule = i.op.sharding_rule(i.call)
            assert check_rule(rule, i.call.operands, tuple(i.shape.leaves())) is None, f"{i}: {rule}"


@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_meaning(opcode: str) -> None:
    """`test_type_coverage` compares the samples made for types, and element-wise ops of all types: few are here."""
    texts = [text for text in SAMPLES[opcode] if text not in samples_types.SAMPLES.get(opcode, ())]
    _check_meaning(opcode, few(opcode, texts))


@pytest.mark.slow
@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_meaning_of_all(opcode: str) -> None:
    _check_meaning(opcode, SAMPLES[opcode])


def _check_meaning(opcode: str, samples: Sequence[str]) -> None:
    """XLA compiles samples of an op together, as we print them; `test_proto` compares how both read each text."""
    pytest.importorskip("jax")
    texts = [text for text in samples if _alone(parse(text)) and runs_on_xla(text)]
    if not texts:
        return
    modules = [parse(text) for text in texts]
    program = compile_text(together(modules).to_text(), quick=opcode not in INEXACT)
    for seed in range(2):
        given = [_inputs(module, text, seed) for module, text in zip(modules, texts, strict=True)]
        theirs = iter(program.run([[x for inputs in given for x in inputs]])[0])
        for module, text, inputs in zip(modules, texts, given, strict=True):
            with np.errstate(all="ignore"):
                ours = evaluate(module, inputs)
            for mine in ours:
                difference = mismatch(np.asarray(mine), next(theirs), compared_as(text, opcode))
                assert difference is None, f"{difference}\nin\n{text}"
        assert next(theirs, None) is None


def _inputs(module: Module, text: str, seed: int) -> list[Array]:
    shapes = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    return random_inputs(shapes, seed, input_kind(text))
