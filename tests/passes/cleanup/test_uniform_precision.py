"""Ops of mixed precision compute in one type, between conversions: verified, evaluated and partitioned alike."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.tools.verifier import check
from hloom.passes.api import partition
from hloom.passes.base import PassContext
from hloom.passes.cleanup.uniform_precision import UniformPrecision
from hloom.runtime import evaluate, simulate

PROGRAM = """HloModule m, num_partitions=2
add {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }}
ge {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = pred[] compare(x, y), direction=GE }}
ENTRY e {{
  a = f32[8,4] parameter(0), sharding={{devices=[2,1]<=[2]}}
  b = bf16[8,4] parameter(1)
  h = f16[8,4] parameter(2)
  {lines}
}}"""

# What is written, and the same in ops of one type.
LINES = [
    ("ROOT r = f32[8,4] add(a, b)", "c = f32[8,4] convert(b) ROOT r = f32[8,4] add(a, c)"),
    ("ROOT r = bf16[8,4] multiply(a, b)",
     "c = f32[8,4] convert(b) p = f32[8,4] multiply(a, c) ROOT r = bf16[8,4] convert(p)"),
    ("ROOT r = f32[8,4] negate(b)", "c = f32[8,4] convert(b) ROOT r = f32[8,4] negate(c)"),
    ("ROOT r = pred[8,4] compare(a, b), direction=LT",
     "c = f32[8,4] convert(b) ROOT r = pred[8,4] compare(a, c), direction=LT"),
    ("ROOT r = f32[16,4] concatenate(a, b), dimensions={{0}}",
     "c = f32[8,4] convert(b) ROOT r = f32[16,4] concatenate(a, c), dimensions={{0}}"),
    ("z = f16[] constant(0) ROOT r = f16[8] reduce(h, z), dimensions={{1}}, to_apply=add",
     "z = f32[] constant(0) c = f32[8,4] convert(h) s = f32[8] reduce(c, z), dimensions={{1}}, to_apply=add "
     "ROOT r = f16[8] convert(s)"),
    # An initial value takes the type of the computation, though the result has it already.
    ("z = f64[] constant(0.1) ROOT r = f32[4] reduce(a, z), dimensions={{0}}, to_apply=add",
     "z = f64[] constant(0.1) y = f32[] convert(z) ROOT r = f32[4] reduce(a, y), dimensions={{0}}, to_apply=add"),
    ("z = f64[] constant(0.1) w = f32[4,4] slice(a), slice={{[0:4], [0:4]}} "
     "ROOT r = f32[8,4] select-and-scatter(a, w, z), window={{size=2x1 stride=2x1}}, select=ge, scatter=add",
     "z = f64[] constant(0.1) y = f32[] convert(z) w = f32[4,4] slice(a), slice={{[0:4], [0:4]}} "
     "ROOT r = f32[8,4] select-and-scatter(a, w, y), window={{size=2x1 stride=2x1}}, select=ge, scatter=add"),
    # Sums that the result cannot hold are rounded once, not on each device.
    ("ROOT r = s32[4,4] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
     "s = f32[4,4] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} ROOT r = s32[4,4] convert(s)"),
    ("ROOT r = s8[4,4] dot(b, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
     "s = bf16[4,4] dot(b, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} ROOT r = s8[4,4] convert(s)"),
    ("g = f32[4] constant({{1, 2, 3, 4}}) "
     "ROOT r = (bf16[8,4], f32[4], f32[4]) batch-norm-training(b, g, g), epsilon=0.1, feature_index=1",
     "g = f32[4] constant({{1, 2, 3, 4}}) c = f32[8,4] convert(b) "
     "n = (f32[8,4], f32[4], f32[4]) batch-norm-training(c, g, g), epsilon=0.1, feature_index=1 "
     "x = f32[8,4] get-tuple-element(n), index=0 y = f32[4] get-tuple-element(n), index=1 "
     "z = f32[4] get-tuple-element(n), index=2 w = bf16[8,4] convert(x) "
     "ROOT r = (bf16[8,4], f32[4], f32[4]) tuple(w, y, z)"),
]  # fmt: skip
X = np.random.default_rng(0).normal(size=(3, 8, 4)).astype(np.float32)
INPUTS = [X[0], X[1].astype(ml_dtypes.bfloat16), X[2].astype(np.float16)]


@pytest.mark.parametrize(("mixed", "uniform"), LINES)
def test_meaning(mixed: str, uniform: str) -> None:
    def module(lines: str) -> str:
        return PROGRAM.format(lines=lines.format())

    expected = evaluate(parse(module(uniform)), INPUTS)
    written_out = parse(module(mixed))
    assert UniformPrecision().run(written_out, PassContext())
    check(written_out)
    assert not UniformPrecision().run(written_out, PassContext())
    for outputs in (evaluate(parse(module(mixed)), INPUTS), evaluate(written_out, INPUTS)):
        for ours, theirs in zip(outputs, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(simulate(partition(parse(module(mixed))), INPUTS), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=0.01, atol=1e-5)


def test_products_of_the_only_float_type_convert_their_sums() -> None:
    text = """ENTRY e { a = f32[8,4] parameter(0)
      n = f32[8,4] negate(a)
      ROOT r = s32[4,4] dot(n, n), lhs_contracting_dims={0}, rhs_contracting_dims={0} }"""
    module = parse(text)
    assert UniformPrecision().run(module, PassContext())
    assert [str(i.shape.element) for i in module.entry][-2:] == ["f32", "s32"]
    assert [i.opcode for i in module.entry] == ["parameter", "negate", "dot", "convert"]
    assert not UniformPrecision().run(module, PassContext())


@pytest.mark.parametrize("line", [
    "i = s32[8,4] convert(a) ROOT r = f32[8,4] add(a, i)",
    "s = bf16[4,4] slice(b), slice={{[0:4], [0:4]}} ROOT r = f32[8,4] add(a, s)",
    "ROOT r = s32[8,4] add(a, b)",
    "i = s32[8,4] convert(a) z = f32[] constant(0) ROOT r = f32[4] reduce(i, z), dimensions={{0}}, to_apply=add",
    "i = s32[8,4] convert(a) z = f32[] constant(0) "
    "ROOT r = f32[1,4] reduce-window(i, z), window={{size=8x1}}, to_apply=add",
    "w = f32[4,4] slice(a), slice={{[0:4], [0:4]}} z = s32[] constant(0) "
    "ROOT r = f32[8,4] select-and-scatter(a, w, z), window={{size=2x1 stride=2x1}}, select=ge, scatter=add",
])  # fmt: skip
def test_what_is_no_matter_of_precision_is_refused(line: str) -> None:
    with pytest.raises(CompileError):
        parse(PROGRAM.format(lines=line.format()))


def test_sums_of_another_type_than_their_numbers_are_scattered_on_each_device() -> None:
    text = PROGRAM.replace("add {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[]",
                           "add {{ x = f64[] parameter(0) y = f64[] parameter(1) ROOT z = f64[]")
    line = ("w = f32[4,4] slice(a), slice={[0:4], [0:4]} z = f32[] constant(2) "
            "ROOT r = f64[8,4] select-and-scatter(a, w, z), window={size=2x1 stride=2x1}, select=ge, scatter=add")
    module = parse(text.format(lines=line))
    (expected,), (found,) = evaluate(module, INPUTS), simulate(partition(module), INPUTS)
    np.testing.assert_array_equal(found, expected)
