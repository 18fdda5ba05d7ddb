"""Refs, arrays that functions of `jax.jit` change in place: their own, and those that they are given."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from support.jax_rows import auto_mesh, put, row


def summed(start: Any, x: Any) -> Any:
    """Adds the rows of `x` to `start`, one by one."""
    total = jax.new_ref(start)

    def add(i: Any, carry: Any) -> Any:
        total[...] = total[...] + x[i] * i
        return carry

    jax.lax.fori_loop(0, x.shape[0], add, None)
    return jax.freeze(total)


@row("a ref of its own, changed in a loop")
def own(jit: Any) -> Any:
    return jit(summed)(jnp.zeros(8), put(auto_mesh(), jnp.arange(64.0).reshape(8, 8) / 64, "x", "y"))


@row("derivatives and maps of functions with refs of their own")
def transformed(jit: Any) -> Any:
    start, x = jnp.ones(3), jnp.arange(12.0).reshape(4, 3)
    grad = jax.grad(lambda x: (jit(summed)(start, x) ** 2).sum())(x)
    return grad, jax.vmap(jit(summed), in_axes=(None, 0))(start, jnp.stack([x, x + 1]))


@row("refs as arguments and in closures")
def given(jit: Any) -> Any:
    x = put(auto_mesh(), jnp.arange(64.0).reshape(8, 8) / 64, "x", "y")
    state, steps = {"w": jax.new_ref(x)}, jax.new_ref(jnp.zeros_like(x))

    def step(state: Any, x: Any) -> Any:
        state["w"][...] -= 0.1 * x @ state["w"][...]
        steps[...] += 1
        return state["w"][0].sum()

    run = jit(step)
    return run(state, x), run(state, x), state["w"][...], steps[...]
