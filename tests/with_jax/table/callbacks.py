"""Python functions that compiled functions call. Each row also returns the calls that happened."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import contextlib
import functools
import importlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding
from support.jax_rows import row

P: Any = PartitionSpec


@functools.cache
def mesh() -> Any:
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@functools.cache
def data() -> Any:
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8) / 50, NamedSharding(mesh(), P("x", "y")))


def line() -> Any:
    return jnp.arange(3, dtype=jnp.float32)


class Calls:
    """Notes calls of Python functions."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def note(self, *values: Any) -> None:
        self.made.append(" ".join(str(np.round(np.asarray(value), 3)) for value in values))

    def shapes(self, *values: Any) -> None:
        self.made.append(" ".join(f"{value.dtype}{value.shape}" for value in values))

    def sine(self, value: Any) -> Any:
        self.shapes(value)
        return np.sin(value)


def like(value: Any) -> Any:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def outcome(calls: Calls, result: Any, ordered: bool = True) -> Any:
    """Waits for all calls. Returns them with the result."""
    jax.block_until_ready(result)
    jax.effects_barrier()
    return {"calls": list(calls.made) if ordered else sorted(calls.made), "result": result}


def effect(jit: Any, *values: Any, callback: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Calls `jax.debug.callback` on the values, and doubles the first."""
    calls = Calls()
    note = callback or calls.note

    def f(*values: Any) -> Any:
        jax.debug.callback(note, *values, **options)
        return values[0] * 2

    return outcome(calls, jit(f)(*values))


# -- effects


def printed(jit: Any, function: Any, *values: Any) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        result = outcome(Calls(), jit(function)(*values))
    return text.getvalue(), result


@row("jax.debug.print")
def debug_print(jit: Any) -> Any:
    def f(x: Any) -> Any:
        jax.debug.print("sum {} first {first:.2f}", x.sum(), first=x[0, 1])
        return x + 1

    return printed(jit, f, data())


@row("jax.debug.print, ordered", devices=1)
def debug_print_ordered(jit: Any) -> Any:
    def f(x: Any) -> Any:
        for n in range(4):
            jax.debug.print("{}", x + n, ordered=True)
        return x

    return printed(jit, f, line())


@row("jax.debug.print, ordered, on several devices")
def debug_print_ordered_on_several(jit: Any) -> Any:
    return effect(jit, data(), ordered=True)


@row("jax.debug.callback", slow=True)
def debug_callback(jit: Any) -> Any:
    return effect(jit, data(), 3)


@row("jax.debug.callback of tiles")
def debug_callback_of_tiles(jit: Any) -> Any:
    calls = Calls()
    found = effect(jit, data(), callback=calls.shapes, partitioned=True)
    return calls.made, found


@row("jax.debug.callback of an array that is not divided", slow=True)
def debug_callback_replicated(jit: Any) -> Any:
    return effect(jit, jax.device_put(np.ones(4, np.float32), NamedSharding(mesh(), P())))


@row("jax.debug.callback without arguments", slow=True)
def debug_callback_without_arguments(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        jax.debug.callback(lambda: calls.note(1))
        return x

    return outcome(calls, jit(f)(data()))


@row("nothing but an effect", slow=True)
def nothing_else(jit: Any) -> Any:
    calls = Calls()
    return outcome(calls, jit(lambda x: jax.debug.callback(calls.shapes, x))(data()))


@row("each call again", slow=True)
def again(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        jax.debug.callback(calls.note, x[0, 0])
        return x + 1

    jitted, value = jit(f), data()
    for _ in range(3):
        value = jax.block_until_ready(jitted(value))
    return outcome(calls, value, ordered=False)


@row("on one device", devices=1)
def on_one_device(jit: Any) -> Any:
    return effect(jit, line())


# -- results


def result_of(jit: Any, call: Callable[[Any], Any], value: Any, ordered: bool = True) -> Any:
    """Calls a Python function for its result, then something else."""
    calls = Calls()
    return outcome(calls, jit(lambda x: call(x)(calls, x) * 2)(value), ordered)


def pure(**options: Any) -> Any:
    return lambda _: lambda calls, x: jax.pure_callback(calls.sine, like(x), x, **options)


def impure(**options: Any) -> Any:
    return lambda _: lambda calls, x: io_callback(calls.sine, like(x), x, **options)


@row("jax.pure_callback")
def pure_callback(jit: Any) -> Any:
    return result_of(jit, pure(), data())


@row("jax.pure_callback as the result", slow=True)
def pure_result(jit: Any) -> Any:
    calls = Calls()
    return outcome(calls, jit(lambda x: jax.pure_callback(calls.sine, like(x), x))(data()))


@row("io_callback")
def io_result(jit: Any) -> Any:
    return result_of(jit, impure(), data())


@row("io_callback on a device", slow=True)
def io_on_device(jit: Any) -> Any:
    return result_of(jit, impure(sharding=SingleDeviceSharding(jax.devices()[3])), data())


@row("io_callback, ordered", devices=1, slow=True)
def io_ordered(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        for _ in range(3):
            x = io_callback(calls.sine, like(x), x, ordered=True)
        return x

    return outcome(calls, jit(f)(line()))


@row("several results of several types", slow=True)
def several_results(jit: Any) -> Any:
    def split(v: Any, w: Any) -> Any:
        return v.sum(0), {"whole": v.astype(np.int32), "flag": w.any()}

    def f(x: Any) -> Any:
        whole, flag = jax.ShapeDtypeStruct(x.shape, np.int32), jax.ShapeDtypeStruct((), bool)
        return jax.pure_callback(split, (like(x[0]), {"whole": whole, "flag": flag}), x * 9, x > 1)

    return jit(f)(data())


@row("bfloat16", slow=True)
def half(jit: Any) -> Any:
    return result_of(jit, pure(), data().astype(jnp.bfloat16))


@row("several functions in one program", slow=True)
def several_functions(jit: Any) -> Any:
    calls = Calls()

    def f(x: Any) -> Any:
        a = io_callback(calls.sine, like(x), x)
        return a + jax.pure_callback(np.cos, like(x), x), jax.pure_callback(np.tanh, like(x), a)

    return outcome(calls, jit(f)(data()))


@row("an exception in Python", devices=1, slow=True)
def exception(jit: Any) -> Any:
    def fails(_: Any) -> Any:
        raise ZeroDivisionError

    return jax.block_until_ready(jit(lambda x: jax.pure_callback(fails, like(x), x))(line()))


@row("a result of another shape", devices=1, slow=True)
def wrong_shape(jit: Any) -> Any:
    return jax.block_until_ready(jit(lambda x: jax.pure_callback(lambda v: v[:1], like(x), x))(line()))


# -- in control flow and regions


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

    return outcome(calls, jit(f, in_shardings=NamedSharding(mesh(), P()))(jax.random.key(7)))


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


@row("gradient of a callback", slow=True)
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


@row("jax.debug.inspect_array_sharding", refused="of which Hloom knows nothing")
def inspect_sharding(jit: Any) -> Any:
    found: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=found.append)
        return x * 2

    return jit(f)(data()), len(found)


@row("a custom-call of an unknown target", devices=1)
def unknown_target(jit: Any) -> Any:
    ffi = importlib.import_module("jax.ffi")
    return jit(lambda x: ffi.ffi_call("nobody_knows_it", like(x))(x) + 1)(line())
