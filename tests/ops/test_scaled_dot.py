"""scaled-dot: the dot of what is scaled by hand, rules, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from ops.build import rule, run, use

_ROWS: dict[str, Any] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,)}


def test_blocks_are_scaled() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 8)), rng.normal(size=(5, 8))
    s, t = rng.normal(size=(3, 2)), np.array(7.0)
    call = use("scaled-dot", "f64[6,8] f64[5,8] f64[3,2] f64[]", **_ROWS)
    wanted = (x * np.repeat(np.repeat(s, 2, 0), 4, 1)) @ y.T
    np.testing.assert_allclose(run("scaled-dot", call, x, y, s, t), wanted)


def test_rules() -> None:
    call = use("scaled-dot", "f32[6,8] f32[5,8] f32[6,2] f32[5,2]", **_ROWS)
    assert rule("scaled-dot", call) == (
        "([i k], [j k], [i l], [j m]) -> [i j] {i=6, j=5, k=8, l=2, m=2} need_replication={k, l, m}"
    )
    call = use("scaled-dot", "f32[6,8] f32[5,8] f32[3,1] f32[]", **_ROWS)
    assert rule("scaled-dot", call) == (
        "([i k], [j k], [l 1], []) -> [i j] {i=6, j=5, k=8, l=3} reduction={k} need_replication={i, l}"
    )


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ("f32[6,8] f32[5,8] f32[6,3] f32[]", "the scale f32[6,3] does not divide lhs, which is f32[6,8]"),
        ("f32[6,8] f32[5,8] f32[] f32[5]", "the scale f32[5] does not divide rhs, which is f32[5,8]"),
        ("s32[6,8] f32[5,8] f32[] f32[]", "lhs and its scale must be floats: s32[6,8] and f32[]"),
        ("f32[6,8] f32[5,7] f32[] f32[]", "lhs dimension 1 is 8, rhs dimension 1 is 7"),
    ],
)
def test_refuses(operands: str, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("scaled-dot", operands, None, **_ROWS)
    assert message in error.value.message
