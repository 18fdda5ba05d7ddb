"""Arrays of JAX for rows of the table: on a mesh of eight devices, and on one."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

P: Any = PartitionSpec


@functools.cache
def mesh() -> Any:
    """Returns a mesh of axes `x` and `y`."""
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def on(*spec: Any) -> Any:
    """Returns a sharding on the mesh."""
    return NamedSharding(mesh(), P(*spec))


@functools.cache
def data(*spec: Any) -> Any:
    """Returns a matrix, divided along both dimensions unless a specification says otherwise."""
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8) / 50, on(*(spec or ("x", "y"))))


@functools.cache
def weights() -> Any:
    """Returns another matrix, divided along its columns."""
    return jax.device_put(np.cos(np.arange(64, dtype=np.float32).reshape(8, 8)), on(None, "y"))


def line() -> Any:
    """Returns a vector on one device."""
    return jnp.linspace(0.1, 0.9, 8, dtype=jnp.float32)


def loss(w: Any, x: Any) -> Any:
    """Returns a number."""
    return jnp.tanh(x @ w).sum()


def number_of(name: str, jaxpr: Any) -> int:
    """Counts a primitive in a jaxpr, and in the jaxprs in it."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == name
        inner = [value for value in equation.params.values() if hasattr(value, "eqns")]
        count += sum(number_of(name, getattr(value, "jaxpr", value)) for value in inner)
    return count
