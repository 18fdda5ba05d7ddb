"""Python functions that compiled functions call in control flow, in regions, and when they are transformed."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_arrays import P, data, line, mesh, on
from support.jax_rows import row
from support.python_calls import Calls, like, outcome


@row("in jax.lax.scan")
def in_scan(jit: Any) -> Any:
    calls = Calls()

    def body(carry: Any, _: Any) -> Any:
        jax.debug.callback(calls.note, carry[0, 0])
        return carry + 1, None

    return outcome(calls, jit(lambda x: jax.lax.scan(body, x, None, length=3)[0])(data()), ordered=False)


@row("in jax.lax.scan, ordered", devices=1, slow=True)
def in_scan_ordered(jit: Any) -> Any:
    calls = Calls()

    def body(carry: Any, _: Any) -> Any:
        jax.debug.callback(calls.note, carry[0], ordered=True)
        return carry + 1, None

    return outcome(calls, jit(lambda x: jax.lax.scan(body, x, None, length=4)[0])(line()))


@row("in jax.lax.cond", slow=True)
def in_cond(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        return jax.lax.cond(
            x[0, 0] < 1, lambda: jax.pure_callback(calls.sine, like(x), x),
            lambda: jax.pure_callback(np.cos, like(x), x),
        )  # fmt: skip

    return outcome(calls, jit(f)(data()))


@row("in the condition of jax.lax.while_loop", slow=True)
def in_while_condition(jit: Any) -> Any:
    def small(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.bool_(v < 3), jax.ShapeDtypeStruct((), bool), x[0, 0])

    return jit(lambda x: jax.lax.while_loop(small, lambda c: c + 1, x))(data())


@row("in jax.shard_map")
def in_shard_map(jit: Any) -> Any:
    calls = Calls()

    def tile(x: Any) -> Any:
        jax.debug.callback(calls.shapes, x)
        return jax.pure_callback(np.sin, like(x), x)

    f = jax.shard_map(tile, mesh=mesh(), in_specs=P("x", "y"), out_specs=P("x", "y"))
    return outcome(calls, jit(lambda x: f(x * 2))(data()))


@row("random keys", slow=True)
def random_keys(jit: Any) -> Any:
    calls = Calls()

    def f(key: Any) -> Any:
        x = jax.random.normal(key, (8,))
        jax.debug.callback(calls.note, x, jax.random.key_data(key))
        return jax.random.split(key)

    return outcome(calls, jit(f, in_shardings=on())(jax.random.key(7)))


# -- transformed


@row("gradient of a function with an effect", slow=True)
def gradient_with_effect(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        jax.debug.callback(calls.shapes, x)
        return (x * x).sum()

    return outcome(calls, jax.grad(jit(f))(data()))


@row("gradient of a callback with a custom derivative", slow=True)
def gradient_of_callback(jit: Any) -> Any:
    sine = jax.custom_jvp(lambda x: jax.pure_callback(np.sin, like(x), x))
    sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(primals[0]) * tangents[0]))
    return jax.grad(jit(lambda x: sine(x).sum()))(data())


@row("gradient of a callback", slow=True, fails=True)
def no_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda x: jax.pure_callback(np.sin, like(x), x).sum()))(data())


@row("jax.vmap of an effect", slow=True)
def vmap_effect(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        jax.debug.callback(calls.note, x[0])
        return x * 2

    return outcome(calls, jax.vmap(jit(f))(data()), ordered=False)


@row("jax.vmap of jax.pure_callback, one by one", slow=True)
def vmap_sequential(jit: Any) -> Any:
    calls = Calls()
    f = jit(lambda x: jax.pure_callback(calls.sine, like(x), x, vmap_method="sequential") * 2)
    return outcome(calls, jax.vmap(f)(data()))


@row("jax.vmap of jax.pure_callback, all at once", slow=True)
def vmap_at_once(jit: Any) -> Any:
    calls = Calls()
    f = jit(lambda x: jax.pure_callback(calls.sine, like(x), x, vmap_method="expand_dims") * 2)
    return outcome(calls, jax.vmap(f)(data()))


@row("jax.checkpoint of an effect", slow=True)
def checkpoint_effect(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        jax.debug.callback(calls.shapes, x)
        return jnp.sin(x * x).sum()

    return outcome(calls, jax.grad(jax.checkpoint(jit(f)))(data()))


@row("inside of jax.jit, with other callbacks", slow=True)
def in_jax_jit(jit: Any) -> Any:
    calls = Calls()
    f = jit(lambda x: jax.pure_callback(calls.sine, like(x), x) + 1)
    g = jit(lambda x: jax.pure_callback(np.cos, like(x), x))

    def outer(x: Any) -> Any:
        jax.debug.callback(calls.note, x[0, 0])
        return f(x) + g(x)

    return outcome(calls, jax.jit(outer)(data()), ordered=False)


@row("inside of jax.jit, ordered", devices=1, slow=True)
def in_jax_jit_ordered(jit: Any) -> Any:
    calls = Calls()

    def print_twice(x: Any) -> Any:
        jax.debug.callback(calls.note, x, ordered=True)
        jax.debug.callback(calls.note, x + 1, ordered=True)
        return x * 2

    inner = jit(print_twice)

    def outer(x: Any) -> Any:
        jax.debug.callback(calls.note, x - 1, ordered=True)
        x = inner(x)
        jax.debug.callback(calls.note, x, ordered=True)
        return inner(x)

    return outcome(calls, jax.jit(outer)(line()))
