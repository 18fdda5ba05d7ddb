"""reduce: shapes, rules, what it refuses, accumulation and the order of elements."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.types.shape import tuple_shape
from ops.build import function, reducer, rule, run, shape, shapes, use

SWAP = function("swap", "f32[] s32[] f32[] s32[]", ("tuple", 2, 3))


def test_shapes() -> None:
    assert use("reduce", "f32[4,5,6] f32[]", dimensions=(0, 2), to_apply=reducer("add")).shape == shape("f32[5]")
    pair = use("reduce", "f32[4,5] s32[4,5] f32[] s32[]", dimensions=(1,), to_apply=SWAP)
    assert pair.shape == tuple_shape(shapes("f32[4] s32[4]"))
    wide = use("reduce", "bf16[4] f32[]", dimensions=(0,), to_apply=reducer("add"))
    assert wide.shape == shape("f32[]")


def test_rule() -> None:
    call = use("reduce", "f32[4,5,6] f32[]", dimensions=(0, 2), to_apply=reducer("maximum"))
    assert rule("reduce", call) == "([i j k], []) -> [j] {i=4, j=5, k=6} reduction={i, k} monoid=maximum"
    call = use("reduce", "f32[4,5] s32[4,5] f32[] s32[]", dimensions=(1,), to_apply=SWAP)
    assert rule("reduce", call) == "([i j], [i j], [], []) -> ([i], [i]) {i=4, j=5} reduction={j}"


@pytest.mark.parametrize(
    ("operands", "dimensions", "combiner", "message"),
    [
        ("f32[4] f32[] f32[]", (0,), reducer("add"), "as many initial values as arrays, it has 3 operands"),
        ("f32[4] f32[1]", (0,), reducer("add"), "initial value 0 must be a scalar, it is f32[1]"),
        ("f32[4] f32[]", (1,), reducer("add"), "reduce: dimension 1 is out of range for rank 1"),
        ("f32[4,4] f32[]", (1, 1), reducer("add"), "reduce: dimension 1 is listed twice"),
        ("f32[4] s32[5] f32[] s32[]", (0,), SWAP, "operand 1 has dimensions [5], not [4]"),
        ("f32[4] f32[]", (0,), reducer("add", "s32"),
         "the computation add_s32: parameter 0 is s32[], but must be f32[]"),
        ("f32[4] f32[]", (0,), SWAP, "the computation swap must take 2 parameters, but takes 4"),
        ("f32[4] f32[]", (0,), function("pair", "f32[] f32[]", ("tuple", 0, 1)),
         "the computation pair must return a scalar, but returns (f32[], f32[])"),
    ],
)  # fmt: skip
def test_refuses(operands: str, dimensions: tuple[int, ...], combiner: Any, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("reduce", operands, dimensions=dimensions, to_apply=combiner)
    assert message in error.value.message


def test_small_floats_are_accumulated_in_f32() -> None:
    call = use("reduce", "bf16[4096] bf16[]", dimensions=(0,), to_apply=reducer("add", "bf16"))
    result = run("reduce", call, np.ones(4096, ml_dtypes.bfloat16), np.zeros((), ml_dtypes.bfloat16))
    assert result.dtype == ml_dtypes.bfloat16
    assert float(result) == 4096


@pytest.mark.parametrize(("opcode", "expected"), [("add", -128), ("multiply", 0), ("maximum", 64), ("minimum", 64)])
def test_integers_wrap(opcode: str, expected: int) -> None:
    call = use("reduce", "s8[6] s8[]", dimensions=(0,), to_apply=reducer(opcode, "s8"))
    init = np.array({"multiply": 1}.get(opcode, 0 if opcode == "add" else 64), np.int8)
    assert run("reduce", call, np.full(6, 64, np.int8), init) == expected


def test_sub_byte_integers_wrap() -> None:
    call = use("reduce", "u4[5] u4[]", dimensions=(0,), to_apply=reducer("add", "u4"))
    result = run("reduce", call, np.full(5, 7).astype(ml_dtypes.uint4), np.zeros((), ml_dtypes.uint4))
    assert int(result) == 35 % 16
    assert result.dtype == ml_dtypes.uint4


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 13])
def test_order_of_elements_is_kept(length: int) -> None:
    """The second of two is associative, and gives the last element."""
    last = function("last", "f32[] f32[] f32[] f32[]", ("tuple", 2, 3))
    call = use("reduce", f"f32[2,{length}] f32[2,{length}] f32[] f32[]", dimensions=(1,), to_apply=last)
    x = np.arange(2 * length, dtype=np.float32).reshape(2, length)
    first, second = run("reduce", call, x, -x, np.float32(7), np.float32(9))
    np.testing.assert_array_equal(first, x[:, -1] if length else [7, 7])
    np.testing.assert_array_equal(second, -x[:, -1] if length else [9, 9])


def test_initial_value_enters_once() -> None:
    call = use("reduce", "f32[3,4] f32[]", dimensions=(0,), to_apply=reducer("add"))
    np.testing.assert_array_equal(run("reduce", call, np.ones((3, 4), np.float32), np.float32(10)), [13, 13, 13, 13])
