"""Python functions that compiled functions call. Each row also returns the calls that happened."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import NamedSharding, SingleDeviceSharding
from support.jax_arrays import P, data, line, mesh
from support.jax_rows import row
from support.python_calls import Calls, effect, like, outcome

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


@row("jax.debug.print, ordered, on several devices", fails=True)
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


@row("an exception in Python", devices=1, slow=True, fails=True)
def exception(jit: Any) -> Any:
    def fails(_: Any) -> Any:
        raise ZeroDivisionError

    return jax.block_until_ready(jit(lambda x: jax.pure_callback(fails, like(x), x))(line()))


@row("a result of another shape", devices=1, slow=True, fails=True)
def wrong_shape(jit: Any) -> Any:
    return jax.block_until_ready(jit(lambda x: jax.pure_callback(lambda v: v[:1], like(x), x))(line()))


def inspected(jit: Any, transformed: Any, x: Any) -> list[Any]:
    """Returns the result of a function, and the shardings of three values in it, one of them in a loop."""
    found: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=found.append)
        product = x @ x.T
        jax.debug.inspect_array_sharding(product, callback=found.append)

        def step(carry: Any, _: Any) -> Any:
            jax.debug.inspect_array_sharding(carry, callback=found.append)
            return carry * 2, None

        return jax.lax.scan(step, product, None, length=3)[0].sum()

    return [jit(transformed(f))(x), [str(sharding) for sharding in found]]


@row("jax.debug.inspect_array_sharding")
def inspect_sharding(jit: Any) -> Any:
    return inspected(jit, lambda f: f, data())


@row("jax.debug.inspect_array_sharding under grad", slow=True)
def inspect_gradient(jit: Any) -> Any:
    return inspected(jit, jax.grad, data())


@row("jax.debug.inspect_array_sharding on one device", devices=1)
def inspect_one(jit: Any) -> Any:
    return inspected(jit, lambda f: f, line()[:, None])


@row("jax.debug.inspect_array_sharding in a manual region", slow=True)
def inspect_manual(jit: Any) -> Any:
    found: list[Any] = []

    def tile(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=found.append)
        return x * 2

    run = jax.shard_map(tile, mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    return jit(run)(data()), [str(sharding) for sharding in found]


@row("a custom-call of an unknown target", devices=1, fails=True)
def unknown_target(jit: Any) -> Any:
    ffi = importlib.import_module("jax.ffi")
    return jit(lambda x: ffi.ffi_call("nobody_knows_it", like(x))(x) + 1)(line())
