"""A training step of JAX without a single annotation, which docs/planning.md plans."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

SHAPES = {"up": (256, 1024), "down": (1024, 256)}


def loss(weights: dict[str, Any], x: Any, y: Any) -> Any:
    hidden = jax.nn.gelu(x @ weights["up"])
    return jnp.mean((hidden @ weights["down"] - y) ** 2)


def step(weights: dict[str, Any], x: Any, y: Any) -> tuple[dict[str, Any], Any]:
    """Returns the weights after a step of gradient descent, and the loss before it."""
    value, gradients = jax.value_and_grad(loss)(weights, x, y)  # pyright: ignore[reportUnknownMemberType]
    return {name: w - 0.1 * gradients[name] for name, w in weights.items()}, value


def program() -> tuple[Any, tuple[Any, ...]]:
    """Returns the step and the shapes of its arguments, for `hloom from-jax`."""
    shape = jax.ShapeDtypeStruct
    batch = shape((512, 256), jnp.float32)
    return step, ({name: shape(dims, jnp.float32) for name, dims in SHAPES.items()}, batch, batch)
