"""call, while, conditional, fusion, map: the signatures they ask for, and their values on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.control import FusionKind
from hloom.ir.types.shape import tuple_shape
from ops.build import function, run, shape, shapes, use

NEGATE = function("neg", "f32[3]", ("negate", 0))
DOUBLE = function("double", "f32[3]", ("add", 0, 0))
ZERO = function("zero", "f32[3]", ("subtract", 0, 0))
SUM = function("sum", "f32[3] f32[3]", ("add", 0, 1))
SCALAR_SUM = function("scalar_sum", "f32[] f32[]", ("add", 0, 1))
FINITE = function("finite", "f32[]", ("is-finite", 0))
SQUARE = function("square", "f32[]", ("multiply", 0, 0))

X = np.array([1, -2, 3], np.float32)


def test_call() -> None:
    call = use("call", "f32[3] f32[3]", to_apply=SUM)
    np.testing.assert_array_equal(run("call", call, X, X), 2 * X)


def test_fusion() -> None:
    call = use("fusion", "f32[3]", kind=FusionKind.LOOP, calls=NEGATE)
    np.testing.assert_array_equal(run("fusion", call, X), -X)


def test_while_runs_until_the_condition_fails() -> None:
    call = use("while", "f32[]", condition=FINITE, body=SQUARE)
    assert run("while", call, np.float32(2)) == np.inf
    assert run("while", call, np.float32(-np.inf)) == -np.inf


@pytest.mark.parametrize(("pred", "expected"), [(True, -X), (False, 2 * X)])
def test_conditional_on_a_pred(pred: bool, expected: Any) -> None:
    call = use("conditional", "pred[] f32[3] f32[3]", true_computation=NEGATE, false_computation=DOUBLE)
    np.testing.assert_array_equal(run("conditional", call, pred, X, X), expected)


@pytest.mark.parametrize(("index", "expected"), [(0, -X), (1, 2 * X), (2, 0 * X), (3, 0 * X), (-1, 0 * X)])
def test_conditional_on_an_index(index: int, expected: Any) -> None:
    call = use("conditional", "s32[] f32[3] f32[3] f32[3]", branch_computations=(NEGATE, DOUBLE, ZERO))
    np.testing.assert_array_equal(run("conditional", call, np.int32(index), X, X, X), expected)


def test_map() -> None:
    call = use("map", "f32[2,3] f32[2,3]", dimensions=(0, 1), to_apply=SCALAR_SUM)
    assert call.shape == shape("f32[2,3]")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run("map", call, x, x), 2 * x)


@pytest.mark.parametrize(
    ("opcode", "operands", "attributes", "message"),
    [
        ("call", "f32[3]", {"to_apply": SUM}, "call: the computation sum takes 2 parameters, but gets 1"),
        ("call", "f32[3] f32[4]", {"to_apply": SUM},
         "call: the computation sum: parameter 1 is f32[3], but gets f32[4]"),
        ("while", "f32[]", {"condition": FINITE, "body": FINITE},
         "while: the body computation finite returns pred[], but must return f32[]"),
        ("while", "f32[]", {"condition": SQUARE, "body": SQUARE},
         "while: the condition computation square returns f32[], but must return pred[]"),
        ("conditional", "pred[] f32[3] f32[3]", {"true_computation": NEGATE},
         "conditional on a pred needs true_computation and false_computation"),
        ("conditional", "s32[] f32[3]", {}, "conditional on an s32 needs branch_computations"),
        ("conditional", "f32[] f32[3]", {"branch_computations": (NEGATE,)},
         "conditional: operand 0 must be pred[] or s32[], it is f32[]"),
        ("conditional", "s32[] f32[3]", {"branch_computations": (NEGATE, DOUBLE)},
         "conditional: 2 branches, but 1 arguments"),
        ("conditional", "s32[] f32[3] f32[4]", {"branch_computations": (NEGATE, DOUBLE)},
         "conditional: branch 1 computation double: parameter 0 is f32[3], but gets f32[4]"),
        ("conditional", "s32[] f32[3] f32[]", {"branch_computations": (NEGATE, SQUARE)},
         "conditional: branch 1 computation square returns f32[], but must return f32[3]"),
        ("map", "f32[3] f32[4]", {"to_apply": SCALAR_SUM}, "map: operand 1 has dimensions [4], operand 0 [3]"),
        ("map", "f32[3] f32[3]", {"to_apply": SCALAR_SUM, "dimensions": (1,)},
         "map: dimensions must be all 1 in order, not [1]"),
    ],
)  # fmt: skip
def test_refuses(opcode: str, operands: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use(opcode, operands, **attributes)
    assert message in error.value.message


def test_tuple_arguments_pass_through() -> None:
    pair = tuple_shape(shapes("f32[3] s32[]"))
    echo = function("echo", [pair], ("opt-barrier", 0))
    assert use("call", [pair], to_apply=echo).shape == pair
