"""Batch normalisation: the gradient is that of training, the rules, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from ops.build import rule, run, use

_SETTINGS = {"epsilon": 0.5, "feature_index": 1}
_TRAINING = "f64[4,3,2] f64[3] f64[3]"


def _training(x: Any, scale: Any, offset: Any) -> Any:
    return run("batch-norm-training", use("batch-norm-training", _TRAINING, None, **_SETTINGS), x, scale, offset)


def test_inference_with_the_statistics_of_training_gives_the_same() -> None:
    rng = np.random.default_rng(0)
    x, scale, offset = rng.normal(size=(4, 3, 2)), rng.normal(size=3), rng.normal(size=3)
    out, mean, variance = _training(x, scale, offset)
    np.testing.assert_allclose(mean, x.mean(axis=(0, 2)))
    np.testing.assert_allclose(variance, x.var(axis=(0, 2)))
    call = use("batch-norm-inference", f"{_TRAINING} f64[3] f64[3]", None, **_SETTINGS)
    np.testing.assert_allclose(run("batch-norm-inference", call, x, scale, offset, mean, variance), out)


def test_gradient_is_that_of_training() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 3, 2))
    scale, offset = rng.normal(size=3), rng.normal(size=3)
    _, mean, variance = _training(x, scale, offset)
    call = use("batch-norm-grad", "f64[4,3,2] f64[3] f64[3] f64[3] f64[4,3,2]", None, **_SETTINGS)
    gradients = run("batch-norm-grad", call, x, scale, mean, variance, weight)
    values = [x, scale, offset]
    for number, gradient in enumerate(gradients):
        for place in list(np.ndindex(values[number].shape))[:5]:
            losses: list[Any] = []
            for step in (1e-5, -1e-5):
                moved = [v.copy() for v in values]
                moved[number][place] += step
                losses.append(np.sum(_training(*moved)[0] * weight))
            np.testing.assert_allclose(gradient[place], (losses[0] - losses[1]) / 2e-5, rtol=1e-5, atol=1e-7)


def test_rules() -> None:
    call = use("batch-norm-training", "f32[4,3] f32[3] f32[3]", epsilon=0.1, feature_index=1)
    assert rule("batch-norm-training", call) == "([i j], [j], [j]) -> ([i j], [j], [j]) {i=4, j=3} reduction={i}"
    call = use("batch-norm-inference", "f32[4,3]" + 4 * " f32[3]", epsilon=0.1, feature_index=1)
    assert rule("batch-norm-inference", call) == "([i j], [j], [j], [j], [j]) -> [i j] {i=4, j=3}"


@pytest.mark.parametrize(
    ("operands", "feature", "message"),
    [
        ("f32[4,3] f32[3] f32[3]", 2, "feature_index 2 is out of range for f32[4,3]"),
        ("f32[4,3] f32[4] f32[3]", 1, "operand 1 must have dimensions [3], it has [4]"),
        ("f32[4,3] f64[3] f32[3]", 1, "element types differ"),
        ("s32[4,3] s32[3] s32[3]", 1, "must have float elements"),
    ],
)
def test_refuses(operands: str, feature: int, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("batch-norm-training", operands, epsilon=0.1, feature_index=feature)
    assert message in error.value.message
