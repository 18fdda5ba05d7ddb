"""Parameters, constants, tuples, barriers, tokens: shapes, rules over leaves, what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.interfaces import DeviceNumber
from hloom.ir.graph.op import NotEvaluable, ShapeError, op_named
from hloom.ir.types.element_type import TOKEN
from hloom.ir.types.literal import Literal, unknown
from hloom.ir.types.shape import array, tuple_shape
from ops.build import compile, rule, run, shape, shapes, use

PAIR = tuple_shape(shapes("f32[4] s32[2,3]"))
NESTED = tuple_shape((shape("pred[5]"), PAIR, array(TOKEN)))


def test_parameter_takes_the_declared_shape() -> None:
    assert use("parameter", "", PAIR, number=3).shape == PAIR
    with pytest.raises(ShapeError, match="parameter 3 needs a declared shape"):
        use("parameter", "", number=3)
    with pytest.raises(ShapeError, match="number -1 is negative"):
        use("parameter", "", PAIR, number=-1)


def test_constant() -> None:
    literal = Literal(np.zeros((2, 3), np.float32))
    call = use("constant", "", literal=literal)
    assert call.shape == shape("f32[2,3]")
    assert rule("constant", call) == "() -> [i j] {i=2, j=3}"
    assert run("constant", call) is literal.array
    with pytest.raises(ShapeError, match=r"the literal is f32\[2,3\], the declared shape is f32\[3,2\]"):
        use("constant", "", "f32[3,2]", literal=literal)


@pytest.mark.parametrize("inside", [False, True])
def test_elided_constant_cannot_be_evaluated(inside: bool) -> None:
    elided = unknown(shape("f32[1000]"))
    literal = Literal(elements=(elided,)) if inside else elided
    call = use("constant", "", literal=literal)
    assert list(call.shape.leaves()) == [shape("f32[1000]")]
    with pytest.raises(NotEvaluable, match="omitted when the program was printed"):
        run("constant", call)


def test_tuple_and_element() -> None:
    made = use("tuple", [shape("pred[5]"), PAIR])
    assert made.shape == tuple_shape((shape("pred[5]"), PAIR))
    assert rule("tuple", made) == "([i], [j], [k l]) -> ([i], [j], [k l]) {i=5, j=4, k=2, l=3}"
    taken = use("get-tuple-element", [NESTED], index=1)
    assert taken.shape == PAIR
    assert rule("get-tuple-element", taken) == "([l], [i], [j k], []) -> ([i], [j k]) {i=4, j=2, k=3, l=5}"
    value = (np.ones(5), (np.ones(4), np.ones(2)), None)
    assert op_named("get-tuple-element").kernel(taken, compile)(value) is value[1]


@pytest.mark.parametrize(
    ("operand", "index", "message"),
    [
        (PAIR, 2, "index 2 is out of range for 2 elements"),
        (PAIR, -1, "index -1 is out of range for 2 elements"),
        (shape("f32[2]"), 0, "the operand must be a tuple, it is f32[2]"),
    ],
)
def test_element_refuses(operand: Any, index: int, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("get-tuple-element", [operand], index=index)
    assert message in error.value.message


def test_barrier_passes_all_leaves() -> None:
    call = use("opt-barrier", [NESTED])
    assert call.shape == NESTED
    assert rule("opt-barrier", call) == "([i], [j], [k l], []) -> ([i], [j], [k l], []) {i=5, j=4, k=2, l=3}"


def test_tokens() -> None:
    token = array(TOKEN)
    assert use("after-all", [token, token]).shape == token
    call = use("add-dependency", [PAIR, token])
    assert call.shape == PAIR
    assert rule("add-dependency", call) == "([i], [j k], []) -> ([i], [j k]) {i=4, j=2, k=3}"
    call = use("after-all", [token, PAIR])
    assert call.shape == token
    assert rule("after-all", call) == "([], [i], [j k]) -> [] {i=4, j=2, k=3}"
    with pytest.raises(ShapeError, match=r"add-dependency: operand 1 must be a token, it is f32\[2\]"):
        use("add-dependency", [PAIR, shape("f32[2]")])


@pytest.mark.parametrize("opcode", ["partition-id", "replica-id"])
def test_device_numbers(opcode: str) -> None:
    assert use(opcode, "").shape == shape("u32[]")
    assert op_named(opcode).interface(DeviceNumber)
