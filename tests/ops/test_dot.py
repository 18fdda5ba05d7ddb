"""dot: result shapes and types, the rule, what it refuses, and numbers that need wide accumulators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom.ir.op import ShapeError
from ops.build import rule, run, shape, use

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
        ("f32[4,6] s32[6,5]", None, MATMUL, "element types differ: lhs is f32, rhs is s32"),
        ("s8[4,6] s32[6,5]", None, MATMUL, "element types differ: lhs is s8, rhs is s32"),
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


def test_sub_byte_integers_wrap() -> None:
    call = use("dot", "s4[1,4] s4[4,1]", **MATMUL)
    x = np.full((1, 4), 3).astype(ml_dtypes.int4)
    result = run("dot", call, x, x.T)
    assert result.dtype == ml_dtypes.int4
    assert int(result[0, 0]) == 4  # 36 = 2 * 16 + 4
