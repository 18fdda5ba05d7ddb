"""Pipelines of a stage function and a schedule compute the loss and the gradients of the whole model."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest

SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("circular", 2), ("interleaved", 2)]

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy

AUTO = jax.sharding.AxisType.Auto


def layer(w: Any, x: Any) -> Any:
    return x + jnp.tanh(x @ w["a"]) @ w["b"]


def loss(y: Any, target: Any) -> Any:
    return jnp.mean((y - target) ** 2)


def arrays(parts: int, stages: int, microbatches: int) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(1)
    w = {"a": draw.normal(size=(parts, stages, 6, 9)) / 3, "b": draw.normal(size=(parts, stages, 9, 6)) / 3}
    x, t = (draw.normal(size=(microbatches, 4, 6)) for _ in range(2))
    return jax.tree.map(np.float32, (w, x, t))


def whole(w: Any, x: Any, t: Any) -> Any:
    """The loss without a pipeline."""
    parts, stages = w["a"].shape[:2]
    for part in range(parts):
        for stage in range(stages):
            x = layer(jax.tree.map(lambda leaf, at=(part, stage): leaf[at], w), x)
    return jnp.mean(jax.vmap(loss)(x, t))


def check(jit: Any, name: str, parts: int = 1, stages: int = 2, microbatches: int = 4, data: int = 2) -> None:
    mesh = jax.make_mesh((stages, data), ("stage", "data"), axis_types=(AUTO, AUTO))
    w, x, t = arrays(parts, stages, microbatches)
    expected, gradients = jax.value_and_grad(whole)(w, x, t)
    x, t = (jax.device_put(v, jax.NamedSharding(mesh, jax.P(None, "data"))) for v in (x, t))
    step = hloom.jax.pipeline(layer, loss, hloom.pipeline_schedule(name, stages, microbatches, parts), mesh)
    value, found = jit(step)(w, x, t)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, gradients)


@pytest.mark.parametrize("data", [1, 2])
def test_a_pipeline_of_one_stage(data: int) -> None:
    """JAX leaves out the borders of manual regions over axes of size 1, and keeps what is inside."""
    check(hloom.jax.jit, "1f1b", stages=1, microbatches=3, data=data)


@pytest.mark.slow
def test_weights_apart() -> None:
    check(hloom.jax.jit, "zb-h1")


@pytest.mark.slow
@pytest.mark.parametrize("jit", [jax.jit, hloom.jax.jit], ids=["jax", "hloom"])
@pytest.mark.parametrize(("name", "parts"), SCHEDULES)
def test_all_schedules(name: str, parts: int, jit: Any) -> None:
    check(jit, name, parts, stages=4, microbatches=8)


@pytest.mark.slow
def test_divided_by_hloom_it_agrees() -> None:
    """Also uneven: five micro-batches of three examples on two stages of two devices."""
    mesh = jax.make_mesh((2, 2), ("stage", "data"), axis_types=(AUTO, AUTO))
    step = hloom.jax.pipeline(layer, loss, hloom.pipeline_schedule("1f1b", 2, 5), mesh)
    w, x, t = arrays(1, 2, 5)
    module = hloom.jax.from_jax(step, w, x[:, :3], t[:, :3])
    local = hloom.partition(module)
    assert hloom.prove(module, local, trials=2).agrees
    assert {c.kind for c in hloom.collectives(local)} >= {"collective-permute"}
    found = hloom.simulate(local, [*jax.tree.leaves(w), x[:, :3], t[:, :3]])
    np.testing.assert_allclose(found[0], whole(w, x[:, :3], t[:, :3]), rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "microbatches", "axis", "message"),
    [
        ((1, 3), 4, "stage", r"weights of this pipeline are arrays \[1, 2, ..\], not \[1, 3, 6, 9\]"),
        ((1, 2), 5, "stage", r"inputs and targets of this pipeline are arrays \[4, ..\], not \[5, 4, 6\]"),
        ((1, 2), 4, "model", "the mesh has no devices along 'model', not 2"),
    ],
)
def test_other_sizes(weights: tuple[int, int], microbatches: int, axis: str, message: str) -> None:
    mesh = jax.make_mesh((2,), ("stage",), axis_types=(AUTO,))
    schedule = hloom.pipeline_schedule("1f1b", 2, 4)
    with pytest.raises(ValueError, match=f"^{message}$"):
        hloom.jax.pipeline(layer, loss, schedule, mesh, axis)(*arrays(*weights, microbatches))
