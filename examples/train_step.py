"""A training step of a small classifier in JAX, data x tensor parallel on a mesh of 2 x 2 devices.

    hloom from-jax examples/train_step.py:program --out step.hlo
    hloom run step.hlo --ranks 4 --check

The mesh is abstract and the arguments are shapes, so nothing is allocated and no devices are needed.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

SHAPES = {"w1": (48, 64), "b1": (64,), "w2": (64, 10)}
SPECS = {"w1": PartitionSpec(None, "model"), "b1": PartitionSpec("model"), "w2": PartitionSpec("model")}


def loss_of(params: Any, images: Any, labels: Any) -> Any:
    """Returns the mean cross entropy of [batch, inputs] against [batch] class numbers."""
    hidden = jax.nn.relu(images @ params["w1"] + params["b1"])
    log_p = jax.nn.log_softmax(hidden @ params["w2"])
    return -(jax.nn.one_hot(labels, log_p.shape[-1]) * log_p).sum(axis=-1).mean()


def train_step(params: Any, images: Any, labels: Any) -> Any:
    """Takes one step of gradient descent. Returns the new parameters and the loss."""
    loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def arguments(mesh: Any) -> tuple[Any, ...]:
    """Returns the shapes of the arguments, with shardings on `mesh`."""

    def shape(dims: tuple[int, ...], spec: Any, kind: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(dims, kind, sharding=NamedSharding(mesh, spec))

    params = {name: shape(dims, SPECS[name]) for name, dims in SHAPES.items()}
    batch = PartitionSpec("data")
    return params, shape((32, 48), batch), shape((32,), batch, jnp.int32)


def program() -> tuple[Any, tuple[Any, ...]]:
    """Returns the training step and its arguments, for `hloom from-jax`."""
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"), axis_types=auto)
    return jax.jit(train_step, donate_argnums=0), arguments(mesh)
