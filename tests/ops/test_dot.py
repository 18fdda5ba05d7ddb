"""dot: result shapes and types, the rule, what it refuses, and numbers that need wide accumulators."""

from __future__ import annotations

import importlib
import itertools
import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.graph.interfaces import Stackable
from hloom.ir.graph.op import ShapeError, op_named
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime import evaluate
from ops.build import compile, rule, run, shape, use
from ops.oracle import random_inputs

MATMUL: dict[str, Any] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
ATTENTION: dict[str, Any] = {
    "lhs_batch_dims": (0, 2), "lhs_contracting_dims": (3,), "rhs_batch_dims": (0, 2), "rhs_contracting_dims": (3,),
}  # fmt: skip


def test_shapes() -> None:
    assert use("dot", "f32[4,6] f32[6,5]", **MATMUL).shape == shape("f32[4,5]")
    assert use("dot", "f32[2,7,3,4] f32[2,9,3,4]", **ATTENTION).shape == shape("f32[2,3,7,9]")
    assert use("dot", "f32[3] f32[2]").shape == shape("f32[3,2]")


def test_result_type_is_declared_or_that_of_the_operands() -> None:
    assert use("dot", "bf16[4,6] bf16[6,5]", **MATMUL).shape == shape("bf16[4,5]")
    assert use("dot", "bf16[4,6] bf16[6,5]", "f32[4,5]", **MATMUL).shape == shape("f32[4,5]")
    assert use("dot", "bf16[4,6] f32[6,5]", **MATMUL).shape == shape("f32[4,5]")
    assert use("dot", "s8[4,6] s8[6,5]", "s32[4,5]", **MATMUL).shape == shape("s32[4,5]")


def test_result_type_of_every_pair_is_that_of_xla() -> None:
    pytest.importorskip("jax")
    small = {"f8e4m3fn", "f8e5m2", "f16", "bf16"}  # XLA dies where it compares others, of the same range
    known = [t for t in ELEMENT_TYPES.values() if t.numpy is not None]
    types = [t.name for t in known if not t.is_float or t.bits > 16 or t.name in small]
    pairs = list(itertools.product(types, types))
    lines = [f"  x.{t} = {t}[2] parameter({n})" for n, t in enumerate(types)]
    dot = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    lines += [f"  r.{n} = dot(x.{a}, x.{b}), {dot}" for n, (a, b) in enumerate(pairs)]
    text = "\n".join(["HloModule m", "ENTRY e {", *lines, "}"])
    theirs = importlib.import_module("jaxlib._hlo").hlo_module_from_text(text).to_string()
    found = re.findall(r"%r\.\d+ = (\w+)\[\]", theirs)
    assert len(found) == len(pairs)
    assert [i.shape.element.name for i in parse(text).entry if i.opcode == "dot"] == found


@pytest.mark.parametrize("opcode", ["dot", "convolution"])
@pytest.mark.parametrize(("lhs", "rhs", "result", "highest"), [
    ("s32", "f16", "f16", "f16"), ("s32", "f16", "f32", "f32"), ("f16", "bf16", "bf16", "bf16"),
    ("f64", "c64", "c64", "c64"), ("pred", "f32", "f32", "f32"), ("u8", "s8", "s8", "s8"), ("u8", "s8", "s32", "s32"),
])  # fmt: skip
def test_operands_are_converted_to_the_highest_type_first(
    opcode: str, lhs: str, rhs: str, result: str, highest: str
) -> None:
    how = {"dot": "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "convolution": "dim_labels=bf_io->bf"}[opcode]
    head = f"ENTRY e {{ x = {lhs}[3,8] parameter(0) y = {rhs}[8,4] parameter(1)"
    mixed = parse(f"{head} ROOT r = {result}[3,4] {opcode}(x, y), {how} }}")
    written = parse(f"""{head} a = {highest}[3,8] convert(x) b = {highest}[8,4] convert(y)
      ROOT r = {result}[3,4] {opcode}(a, b), {how} }}""")
    given = random_inputs([p.shape for p in mixed.entry.parameters], 0, "special" if lhs == "s32" else "plain")
    with np.errstate(all="ignore"):
        ours, wanted = evaluate(mixed, given), evaluate(written, given)
    np.testing.assert_array_equal(ours, wanted)


def test_rule() -> None:
    call = use("dot", "f32[4,6] f32[6,5]", **MATMUL)
    assert rule("dot", call) == "([i k], [k j]) -> [i j] {i=4, j=5, k=6} reduction={k}"
    call = replace(use("dot", "f32[4,6] f32[6,5]", **MATMUL), shape=shape("s32[4,5]"))  # partial sums do not fit
    assert rule("dot", call) == "([i k], [k j]) -> [i j] {i=4, j=5, k=6} need_replication={k}"
    call = use("dot", "f32[2,7,3,4] f32[2,9,3,4]", **ATTENTION)
    assert rule("dot", call) == "([i k j m], [i l j m]) -> [i j k l] {i=2, j=3, k=7, l=9, m=4} reduction={m}"
    call = use("dot", "f32[1,6] f32[6,1]", **MATMUL)
    assert rule("dot", call) == "([1 i], [i 1]) -> [1 1] {i=6} reduction={i}"


@pytest.mark.parametrize(
    ("operands", "declared", "attributes", "message"),
    [
        ("f32[4,6] f32[8,5]", None, MATMUL,
         "contracting dimensions differ: lhs dimension 1 is 6, rhs dimension 0 is 8"),
        ("f32[4,6] f32[6,5]", None, {"lhs_contracting_dims": (1,)}, "lhs has 1 contracting dimensions, rhs has 0"),
        ("f32[4,6] f32[6,5]", None, {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (0,)},
         "dot: lhs: dimension 2 is out of range for rank 2"),
        ("f32[4,6] f32[6,5]", None, {**MATMUL, "lhs_batch_dims": (1,), "rhs_batch_dims": (1,)},
         "dot: lhs: dimension 1 is listed twice"),
        ("f32[2,4,6] f32[3,6,5]", None,
         {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,), "lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,)},
         "batch dimensions differ: lhs dimension 0 is 2, rhs dimension 0 is 3"),
    ],
)  # fmt: skip
def test_refuses(operands: str, declared: str | None, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("dot", operands, declared, **attributes)
    assert message in error.value.message


def test_small_floats_are_added_in_f32() -> None:
    call = use("dot", "bf16[1,4096] bf16[4096,1]", **MATMUL)
    ones = np.ones((1, 4096), ml_dtypes.bfloat16)
    assert run("dot", call, ones, ones.T)[0, 0] == 4096  # adding in bf16 stops at 256


def test_integers_wrap_in_the_result_type() -> None:
    narrow, wide = use("dot", "s8[1,4] s8[4,1]", **MATMUL), use("dot", "s8[1,4] s8[4,1]", "s32[1,1]", **MATMUL)
    x = np.full((1, 4), 100, np.int8)
    assert run("dot", narrow, x, x.T)[0, 0] == np.int64(40000).astype(np.int8)
    assert run("dot", wide, x, x.T)[0, 0] == 40000


@pytest.mark.parametrize(
    ("operand", "result"), [("s8", "s32"), ("u8", "u32"), ("s16", "s64"), ("s8", "s8"), ("s32", "s32"), ("u64", "u64")]
)
def test_many_products_of_integers_wrap_in_the_result_type(operand: str, result: str) -> None:
    """Narrow ones are multiplied as floats, whose sums are exact; for those of 32 bits and more they would not be."""
    modulus, limits = 2 ** ELEMENT_TYPES[result].bits, np.iinfo(str(ELEMENT_TYPES[operand].numpy))
    x, y = (np.random.default_rng(n).integers(limits.min, limits.max, (40, 50), limits.dtype, True) for n in range(2))
    x[0], y[0] = limits.min, limits.max
    found = run("dot", use("dot", f"{operand}[40,50] {operand}[40,50]", f"{result}[40,40]",
                           lhs_contracting_dims=(1,), rhs_contracting_dims=(1,)), x, y)  # fmt: skip
    exact = x.astype(object) @ y.T.astype(object) % modulus
    assert (found.astype(object) % modulus == exact).all()


def test_sub_byte_integers_wrap() -> None:
    call = use("dot", "s4[1,4] s4[4,1]", **MATMUL)
    x = np.full((1, 4), 3).astype(ml_dtypes.int4)
    result = run("dot", call, x, x.T)
    assert result.dtype == ml_dtypes.int4
    assert int(result[0, 0]) == 4  # 36 = 2 * 16 + 4


@pytest.mark.parametrize("count", [1, 3])
def test_a_stack_of_dots_is_one_dot(count: int) -> None:
    op, one = op_named("dot"), use("dot", "f64[2,5,3,4] f64[2,9,3,4]", **ATTENTION)
    stackable = op.interface(Stackable)
    assert stackable is not None
    stack = stackable.stacked(one, count)
    assert op.infer_shape(stack.operands, stack.attributes, None) == stack.shape
    x, y = (np.random.default_rng(n).normal(size=(count, *s.dims)) for n, s in enumerate(one.operands))
    alone = op.kernel(one, compile)
    found = op.kernel(stack, compile)(x, y)
    assert np.allclose(found, [alone(a, b) for a, b in zip(x, y, strict=True)], rtol=1e-14)
