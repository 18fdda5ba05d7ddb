"""custom-call: known targets and unknown ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import NotEvaluable, ShapeError, op_named
from hloom.ir.types.shape import Shape, tuple_shape
from ops.build import rule, run, shape, shapes, use

TOP = tuple_shape(shapes("f32[2,3] s32[2,3]"))


@pytest.mark.parametrize("target", ["Sharding", "MoveToHost", "xla.sdy.PropagationBarrier", "InspectSharding"])
def test_identities(target: str) -> None:
    call = use("custom-call", "f32[4,6]", "f32[4,6]", custom_call_target=target)
    assert rule("custom-call", call) == "([i j]) -> [i j] {i=4, j=6}"
    x = np.ones((4, 6), np.float32)
    assert run("custom-call", call, x) is x


def test_unknown_target_is_replicated_and_cannot_be_evaluated() -> None:
    call = use("custom-call", "f32[4,6]", "f32[3]", custom_call_target="lapack_sgetrf")
    assert rule("custom-call", call) == "([i j]) -> [k] {i=4, j=6, k=3} need_replication={i, j, k}"
    with pytest.raises(NotEvaluable, match='target "lapack_sgetrf" is unknown'):
        run("custom-call", call, np.ones((4, 6), np.float32))


def test_borders_of_manual_regions_are_no_functions_of_values() -> None:
    call = use("custom-call", "f32[8]", "f32[2]", custom_call_target="SPMDFullToShardShape")
    with pytest.raises(NotEvaluable, match="inside a computation that is applied to elements"):
        run("custom-call", call, np.ones(8, np.float32))


def test_side_effect_is_said_by_the_attribute() -> None:
    op = op_named("custom-call")
    kept = use("custom-call", "", "f32[2]", custom_call_target="print", custom_call_has_side_effect=True)
    gone = use("custom-call", "", "f32[2]", custom_call_target="print")
    assert op.has_side_effect(kept.attributes)
    assert not op.has_side_effect(gone.attributes)


def test_top_k_orders_nan_first_and_equal_numbers_by_place() -> None:
    call = use("custom-call", "f32[2,5]", TOP, custom_call_target="TopK")
    assert rule("custom-call", call) == "([i j]) -> ([i k], [i k]) {i=2, j=5, k=3} reduction={j} need_replication={k}"
    x = np.array([[1, 3, 3, 2, 3], [-1, np.nan, np.inf, 0, -2]], np.float32)
    values, places = run("custom-call", call, x)
    np.testing.assert_array_equal(values, np.array([[3, 3, 3], [np.nan, np.inf, 0]], np.float32))
    np.testing.assert_array_equal(places, [[1, 2, 4], [1, 2, 3]])
    assert places.dtype == np.int32


@pytest.mark.parametrize(
    ("target", "operands", "declared", "message"),
    [
        ("Sharding", "f32[4]", shape("f32[5]"), "the operand is f32[4], the result is f32[5]"),
        ("Sharding", "f32[4] f32[4]", shape("f32[4]"), "takes one operand, found 2"),
        ("Sharding", "f32[4]", None, "custom-call Sharding needs a result shape"),
        ("TopK", "f32[2,2]", TOP, "cannot be elements of f32[2,2]"),
        ("TopK", "s32[2,5]", TOP, "are not values and indices of s32[2,5]"),
    ],
)
def test_refuses(target: str, operands: str, declared: Shape | None, message: str) -> None:
    attributes: dict[str, Any] = {"custom_call_target": target}
    with pytest.raises(ShapeError) as error:
        use("custom-call", operands, declared, **attributes)
    assert message in error.value.message
