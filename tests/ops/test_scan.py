"""scan: against a loop, the rule, and what it refuses. Samples compare with XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.types.shape import array, tuple_shape
from ops.build import function, rule, run, shape, shapes, use

_BODY = function("body", "s32[] s32[]", ("multiply", 0, 1), ("add", 0, 1), ("tuple", 2, 3))


@pytest.mark.parametrize("is_reverse", [False, True])
def test_equals_a_loop(is_reverse: bool) -> None:
    row = [3, -1, 4, 1, -5]
    call = use("scan", "s32[5] s32[]", dimensions=(0,), num_carries=1, is_reverse=is_reverse, to_apply=_BODY)
    assert call.attributes.is_associative is False
    outputs, carry = run("scan", call, np.array(row, np.int32), np.int32(2))
    wanted, state = [0] * 5, 2
    for k in reversed(range(5)) if is_reverse else range(5):
        wanted[k], state = row[k] * state, row[k] + state
    assert outputs.tolist() == wanted
    assert int(carry) == state


def test_no_steps() -> None:
    call = use("scan", "s32[0] s32[]", dimensions=(0,), num_carries=1, to_apply=_BODY)
    outputs, carry = run("scan", call, np.zeros(0, np.int32), np.int32(2))
    assert outputs.shape == (0,)
    assert int(carry) == 2


def test_shape_and_rule() -> None:
    call = use("scan", "s32[5] s32[]", dimensions=(0,), num_carries=1, to_apply=_BODY)
    assert call.shape == tuple_shape((shape("s32[5]"), array(shape("s32[]").element)))
    assert rule("scan", call) == "([i], []) -> ([j], []) {i=5, j=5} need_replication={i, j}"


@pytest.mark.parametrize(
    ("operands", "more", "message"),
    [
        ("s32[5] s32[]", {"dimensions": ()}, "scan needs one dimension, it has 0"),
        ("s32[5] s32[]", {"dimensions": (1,)}, "dimension 1 is out of range for s32[5]"),
        ("s32[5] s32[]", {"num_carries": 3}, "num_carries is 3, there are 2 operands"),
        ("s32[5] s32[4]", {"num_carries": 0}, "different sizes along dimension 0: [4, 5]"),
        ("s32[5,2] s32[]", {}, "parameter 0 is s32[], but gets s32[2]"),
        ("f32[5] s32[]", {}, "parameter 0 is s32[], but gets f32[]"),
        ("s32[] s32[]", {"num_carries": 2}, "the number of steps is unknown"),
    ],
)
def test_refuses(operands: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("scan", shapes(operands), None, **({"dimensions": (0,), "num_carries": 1, "to_apply": _BODY} | more))
    assert message in error.value.message
