"""Meshes with automatic axes: shardings of arguments, results and constraints, and where the mesh comes from."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from support.jax_rows import auto_mesh, put, row

P = jax.sharding.PartitionSpec
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 9


def on(*spec: Any) -> Any:
    return jax.sharding.NamedSharding(auto_mesh(), P(*spec))


def product(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


@row("arguments divide the program")
def of_arguments(jit: Any) -> Any:
    found = jit(product)(jax.device_put(X, on("x")), jax.device_put(X, on(None, "y")))
    return found, found.sharding.device_set, found.committed


@row("shardings of results that whole axes do not divide")
def of_results(jit: Any) -> Any:
    x = jax.device_put(np.arange(8.0, dtype=np.float32), on(("x", "y")))
    parts = jit(lambda x: (x[:4], x[:6], jnp.concatenate([x, x[:4]]), x.reshape(2, 2, 2), x.reshape(4, 2).T))(x)
    return parts, [part.sharding for part in parts]


@row("in_shardings and out_shardings of named axes")
def named(jit: Any) -> Any:
    found = jit(product, in_shardings=(on("x"), on(None, "y")), out_shardings=on("x", "y"))(X, X)
    return found, found.sharding


@row("in_shardings for a tree, and None")
def prefix(jit: Any) -> Any:
    f = jit(lambda t, x: (t["a"] + x, t["b"]), in_shardings=({"a": on("x"), "b": None}, None), out_shardings=on("y"))
    found = f({"a": X, "b": X}, 2.0)
    return found, [v.sharding for v in found]


@row("one sharding for all arguments, one for all results")
def one_for_all(jit: Any) -> Any:
    found = jit(lambda x, y: (x + y, {"z": x}), in_shardings=on("x"), out_shardings=on())(X, X)
    return found, jax.tree.map(lambda v: v.sharding, found)


@row("in_shardings of another structure", fails=True)
def wrong_prefix(jit: Any) -> Any:
    return jit(lambda x, y: x + y, in_shardings=(on("x"), on("x"), on("x")))(X, X)


@row("in_shardings and keywords", fails=True)
def keywords(jit: Any) -> Any:
    return jit(lambda x: x, in_shardings=on("x"))(x=X)


@row("arguments that disagree with in_shardings", fails=True)
def disagree(jit: Any) -> Any:
    return jit(lambda x: x, in_shardings=on("x"))(jax.device_put(X, on("y")))


@row("an argument that in_shardings cannot divide evenly", fails=True)
def uneven_argument(jit: Any) -> Any:
    return jit(lambda x: x, in_shardings=on("y"))(X[:7])


@row("a result that out_shardings cannot divide evenly", fails=True)
def uneven_result(jit: Any) -> Any:
    return jit(lambda x: x[:7], out_shardings=on("y"))(X)


@row("more dimensions in a sharding than in the array", fails=True)
def too_many_dims(jit: Any) -> Any:
    return jit(lambda x: x.sum(), out_shardings=on("x", "y"))(X)


@row("axes that the mesh does not have", fails=True)
def unknown_axis(jit: Any) -> Any:
    return jit(lambda x: x, out_shardings=on("z"))(X)


@row("specifications without a mesh", fails=True)
def no_mesh(jit: Any) -> Any:
    return jit(lambda x: x, in_shardings=P("x"))(X)


@row("specifications under jax.set_mesh")
def set_mesh(jit: Any) -> Any:
    with jax.set_mesh(auto_mesh()):
        x = jax.device_put(X, P("x"))
        found = jit(lambda a: a * 2, in_shardings=P("x"), out_shardings=P("y"))(x)
        return found, found.sharding


@row("the mesh of jax.set_mesh alone")
def set_mesh_alone(jit: Any) -> Any:
    with jax.set_mesh(auto_mesh()):
        found = jit(lambda a: a @ a)(X)
        return found, found.sharding.device_set


@row("a constraint on a specification under jax.set_mesh")
def constraint_under_set_mesh(jit: Any) -> Any:
    with jax.set_mesh(auto_mesh()):
        found = jit(lambda a: jax.lax.with_sharding_constraint(a + 1, P("x", "y")))(X)
        return found, found.sharding


@row("jax.set_mesh for a device each call, one function", slow=True)
def two_meshes(jit: Any) -> Any:
    f = jit(lambda a: a.sum(0), out_shardings=P("x"))
    found: list[Any] = []
    for mesh in (auto_mesh(), jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))):
        with jax.set_mesh(mesh):
            value = f(X)
            found += [value, value.sharding]
    return found


@row("a mesh that only a constraint inside names")
def only_in_constraint(jit: Any) -> Any:
    found = jit(lambda x: jax.lax.with_sharding_constraint(jnp.sin(x), on("x")).sum(0))(X)
    return found, found.sharding.device_set


@row("constraints with open dimensions")
def unconstrained(jit: Any) -> Any:
    open_dims = on("x", P.UNCONSTRAINED)
    return jit(lambda x: jax.lax.with_sharding_constraint(x @ x, open_dims))(jax.device_put(X, on(None, "y")))


@row("constraints on several values, and their gradients")
def constraint_of_tree(jit: Any) -> Any:
    def f(t: Any) -> Any:
        t = jax.lax.with_sharding_constraint(t, {"a": on("x"), "b": on()})
        return (t["a"] * t["b"]).sum()

    return jit(jax.value_and_grad(f))({"a": X, "b": X + 1})


@row("a constraint without effect on one device")
def constraint_on_one_device(jit: Any) -> Any:
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jit(lambda x: jax.lax.with_sharding_constraint(x, one) + 1)(X)


@row("a constraint on other devices than the arguments", fails=True)
def constraint_elsewhere(jit: Any) -> Any:
    two = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices()[:2], ("d",)), P("d"))
    return jit(lambda x: jax.lax.with_sharding_constraint(x, two))(jax.device_put(X, on("x")))


@row("jax.device_put inside")
def device_put_inside(jit: Any) -> Any:
    found = jit(lambda x: jax.device_put(x * 2, on("y", "x")))(jax.device_put(X, on("x")))
    return found, found.sharding


@row("axes together on one dimension")
def axes_together(jit: Any) -> Any:
    found = jit(lambda x: x + 1, out_shardings=on(("x", "y")))(jax.device_put(X, on(("y", "x"))))
    return found, found.sharding


@row("a dimension that is not divided, spelled in three ways")
def spelled(jit: Any) -> Any:
    f = jit(lambda x: x * 2)
    return [f(jax.device_put(X, on(*spec))) for spec in (("x",), ("x", None), (("x",), None))], f._cache_size() <= 3


@row("positional shardings of devices")
def single_device(jit: Any) -> Any:
    one = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    found = jit(lambda x: x + 1, in_shardings=one, out_shardings=one)(X)
    return found, found.sharding


@row("meshes in another order of devices")
def order(jit: Any) -> Any:
    devices = np.array(jax.devices())[[3, 1, 0, 2, 7, 5, 4, 6]].reshape(2, 4)
    x = put(jax.sharding.Mesh(devices, ("x", "y")), X, "y", "x")
    found = jit(lambda x: x @ x.T)(x)
    return found, found.sharding.device_set


@row("arguments on two meshes of the same devices")
def same_devices(jit: Any) -> Any:
    other = jax.make_mesh((8,), ("z",), axis_types=(jax.sharding.AxisType.Auto,))
    return jit(lambda a, b: a + b)(jax.device_put(X, on("x", "y")), put(other, X, "z"))


@row("arguments on meshes of different devices", fails=True)
def other_devices(jit: Any) -> Any:
    part = jax.sharding.Mesh(jax.devices()[:2], ("z",))
    return jit(lambda a, b: a + b)(jax.device_put(X, on("x", "y")), put(part, X, "z"))


@row("a mesh of some of the devices")
def some_devices(jit: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices())[[1, 6, 4, 2]].reshape(2, 2), ("x", "y"))
    found = jit(lambda x: jnp.cumsum(x @ x, 0))(put(mesh, X, "x", "y"))
    return found, found.sharding.device_set


@row("uncommitted arguments move to the mesh of the others")
def uncommitted(jit: Any) -> Any:
    found = jit(product)(jax.device_put(X, on("x", "y")), jnp.ones((8, 8)))
    return found, found.sharding.device_set


@row("results feed the next call", slow=True)
def next_call(jit: Any) -> Any:
    f = jit(lambda x: jnp.roll(x @ x.T, 1, 0) / 100)
    x = jax.device_put(X, on("x", "y"))
    for _ in range(3):
        x = f(x)
    return x, f._cache_size() <= 2


@row("inside of jax.jit, without a mesh")
def inside_jit(jit: Any) -> Any:
    inner = jit(jnp.tanh)
    return jax.jit(lambda x: inner(x).sum() + inner(x @ x)[0, 0])(jax.device_put(X, on("x")))


@row("inside of jax.jit, with shardings of its own")
def inside_jit_with_shardings(jit: Any) -> Any:
    inner = jit(jnp.tanh, in_shardings=on("x"), out_shardings=on(None, "y"))
    return jax.jit(lambda x: inner(x + 1) * 2)(jax.device_put(X, on("x")))


@row("inside of jax.jit, in a loop and a branch", slow=True)
def inside_loops(jit: Any) -> Any:
    inner = jit(lambda x: jnp.roll(x, 1, 0) * 0.5)

    def run(x: Any) -> Any:
        x = jax.lax.fori_loop(0, 3, lambda _, v: inner(v) + 1, x)
        return jax.lax.cond(x.sum() > 0, inner, lambda v: v, x)

    return jax.jit(run)(jax.device_put(X, on("x")))


@row("inside of itself, and of another", slow=True)
def nested(jit: Any) -> Any:
    inner = jit(lambda x: jnp.cumsum(x, 0))
    return jit(lambda x: inner(inner(x)) + inner(x.T))(jax.device_put(X, on("x")))


@row("collectives from products, sums and gathers", slow=True)
def products(jit: Any) -> Any:
    x = jax.device_put(X, on("x", "y"))
    return jit(lambda x: (x @ x, x.sum(1), x[::2, ::-1], jnp.sort(x, 0), x[jnp.array([3, 1])]))(x)


@row("results of sizes that no mesh divides evenly", slow=True)
def uneven_inside(jit: Any) -> Any:
    return jit(lambda x: (jnp.concatenate([x, x[:3]]), x[:5].sum(0), jnp.pad(x, 1)))(jax.device_put(X, on("y")))


@row("memory kinds of results")
def memory_kind(jit: Any) -> Any:
    host = jax.sharding.NamedSharding(auto_mesh(), P("x"), memory_kind="pinned_host")
    found = jit(lambda x: x + 1, out_shardings=host)(jax.device_put(X, on("x")))
    return found, found.sharding.memory_kind


@row("layouts of arguments and results")
def layouts(jit: Any) -> Any:
    found = jit(lambda x: x + 1, out_shardings=Format(Layout((1, 0)), on("x")))(jax.device_put(X, on("x")))
    return found, str(found.format.layout.major_to_minor)
