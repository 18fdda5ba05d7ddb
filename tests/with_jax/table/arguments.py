"""Kinds of arguments and results of `jax.jit`, and settings of JAX."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_rows import auto_mesh, put, row


class Point(NamedTuple):
    x: Any
    y: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Box:
    low: Any
    high: Any
    name: str = dataclasses.field(default="box", metadata={"static": True})


@row("nested pytrees, None and empty containers")
def nested(jit: Any) -> Any:
    tree = {"a": [jnp.ones(2), (None, {})], "b": (), "c": collections.OrderedDict(z=1.0, y=jnp.arange(2))}
    return jit(lambda t: (jax.tree.map(lambda v: v + 1, t), None, [], t["b"]))(tree)


@row("named tuples and data classes")
def structures(jit: Any) -> Any:
    point, box = jit(lambda p, b: (Point(p.y, p.x), dataclasses.replace(b, low=b.high)))(
        Point(1.0, jnp.ones(2)), Box(jnp.zeros(2), jnp.ones(2), "mine"))
    return point, box.low, box.high, box.name


@row("no arguments")
def no_arguments(jit: Any) -> Any:
    return jit(lambda: jnp.arange(4) * 2)()


@row("no results")
def no_results(jit: Any) -> Any:
    return jit(lambda x: None)(jnp.ones(3)), jit(lambda x: ())(1.0), jit(lambda x: {})(np.ones(2))


@row("results that are arguments, constants, or each other")
def forwarded(jit: Any) -> Any:
    return jit(lambda x, y: (y, x, x, x + y, 3, jnp.ones(2), np.arange(2)))(jnp.arange(3.0), 2.0)


@row("arrays of size zero")
def zero_sized(jit: Any) -> Any:
    return jit(lambda x, y: (x + 1, y @ y.T, x.sum(), jnp.concatenate([x, jnp.ones(2)])))(
        jnp.zeros(0), jnp.zeros((3, 0)))


@row("scalars of Python, numpy and JAX", slow=True)
def scalars(jit: Any) -> Any:
    f = jit(lambda x: x * 2)
    return [f(v) for v in (1, 2.0, True, 1j, np.float32(3), np.int8(4), jnp.float32(5), np.array(6.0, np.float16))]


@row("weak types of arguments and results")
def weak_types(jit: Any) -> Any:
    f = jit(lambda x: (x, x * 2, jnp.asarray(3.0), x + jnp.ones(2, jnp.bfloat16)))
    return f(1.5), f(1), f(jnp.asarray(2.0)), f(jnp.float32(2))


@row("weak types are kept apart in the cache")
def weak_types_in_cache(jit: Any) -> Any:
    f = jit(lambda x: x + jnp.ones(2, jnp.bfloat16))
    return f(1.0), f(jnp.float32(1)), f(1.0), f._cache_size()


@row("64-bit numbers under x64", slow=True)
def x64(jit: Any) -> Any:
    with jax.enable_x64(True):
        return jit(lambda x, y: (x + 1, y * 2, x.sum()))(np.arange(3), np.arange(3.0)), jit(lambda n: n + 2**40)(1)


@row("64-bit numbers without x64")
def no_x64(jit: Any) -> Any:
    return jit(lambda x, y: (x + 1, y * 2))(np.arange(3), np.arange(3.0))


@row("an integer that is too large", fails=True)
def overflow(jit: Any) -> Any:
    return jit(lambda x: x)(2**70)


@row("small, unsigned, complex and boolean types", slow=True)
def types(jit: Any) -> Any:
    kinds = ("int4", "int8", "uint16", "bool", "float16", "bfloat16", "float8_e4m3fn", "complex64")
    return [jit(lambda x: (x, x[::-1]))(jnp.arange(4).astype(kind)) for kind in kinds]


@row("arguments that are no arrays", fails=True)
def no_arrays(jit: Any) -> Any:
    return jit(lambda x: x)("text")


@row("random keys, typed and raw", slow=True)
def keys(jit: Any) -> Any:
    f = jit(lambda k: (jax.random.split(k), jax.random.normal(k, (3,)), k))
    return f(jax.random.key(0)), f(jax.random.PRNGKey(1)), f(jax.random.key(2, impl="rbg"))


@row("divided random keys", slow=True)
def divided_keys(jit: Any) -> Any:
    keys = put(auto_mesh(), jax.random.split(jax.random.key(0), 8), "x")
    return jit(jax.vmap(lambda k: (jax.random.uniform(k, (2,)), jax.random.fold_in(k, 1))))(keys)


@row("arrays on another device than the first")
def other_device(jit: Any) -> Any:
    x = jax.device_put(jnp.arange(3.0), jax.devices()[5])
    found = jit(lambda x, y: x + y)(x, np.ones(3, np.float32))
    return found, found.devices(), found.committed


@row("committed and uncommitted results", slow=True)
def committed(jit: Any) -> Any:
    f = jit(lambda x: x + 1)
    found = [f(v) for v in (jnp.ones(2), jax.device_put(jnp.ones(2), jax.devices()[0]), np.ones(2), 1.0)]
    return found, [v.committed for v in found], [v.devices() for v in found]


@row("arrays committed to different devices", fails=True)
def different_devices(jit: Any) -> Any:
    a, b = (jax.device_put(jnp.ones(2), d) for d in jax.devices()[:2])
    return jit(lambda x, y: x + y)(a, b)


@row("arrays on one device and on a mesh")
def device_and_mesh(jit: Any) -> Any:
    a = put(auto_mesh(), np.ones(8, np.float32), "x")
    return jit(lambda x, y: x + y)(a, jnp.arange(8.0)), jit(lambda x, y: x + y)(jnp.arange(8.0), a)


@row("a deleted array", fails=True)
def deleted(jit: Any) -> Any:
    x = jnp.ones(3)
    x.delete()
    return jit(lambda x: x + 1)(x)


# -- settings


@row("errors in the function", fails=True)
def errors(jit: Any) -> Any:
    return jit(lambda x: x @ jnp.ones(3))(jnp.ones(4))


@row("a branch of Python on a traced value", fails=True)
def python_branch(jit: Any) -> Any:
    return jit(lambda x: 1 if x > 0 else 2)(3.0)


@row("jax.disable_jit")
def disable_jit(jit: Any) -> Any:
    with jax.disable_jit():
        return jit(lambda x: x * 2 if x > 0 else x)(3.0)


@row("jax.clear_caches and clear_cache", slow=True)
def clear_caches(jit: Any) -> Any:
    f = jit(lambda x: x + 1)
    sizes = [f._cache_size(), f(1.0), f._cache_size()]
    f.clear_cache()
    sizes += [f._cache_size(), f(2.0), f(jnp.ones(3))]
    jax.clear_caches()
    return [*sizes, f._cache_size(), f(3.0)]


@row("numbers that are not finite are found with jax_debug_nans", fails=True)
def debug_nans(jit: Any) -> Any:
    with jax.debug_nans(True):
        return jit(jnp.log)(-1.0)


@row("default precision of products")
def precision(jit: Any) -> Any:
    with jax.default_matmul_precision("highest"):
        return jit(lambda x: x @ x)(jnp.ones((4, 4)) / 3)


@row("a default device")
def default_device(jit: Any) -> Any:
    with jax.default_device(jax.devices()[3]):
        found = jit(lambda x: x + 1)(np.ones(3, np.float32))
    return found, found.devices(), found.committed
