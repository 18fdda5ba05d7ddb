"""Transformations of functions that are compiled, and compiled functions inside of others."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from support.jax_rows import row

P: Any = PartitionSpec
POLICIES: Any = jax.checkpoint_policies


@functools.cache
def mesh() -> Any:
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def on(*spec: Any) -> Any:
    return NamedSharding(mesh(), P(*spec))


@functools.cache
def data() -> Any:
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8) / 50, on("x", "y"))


@functools.cache
def weights() -> Any:
    return jax.device_put(np.cos(np.arange(64, dtype=np.float32).reshape(8, 8)), on(None, "y"))


def line() -> Any:
    return jnp.linspace(0.1, 0.9, 8, dtype=jnp.float32)


def loss(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum()


def number_of(name: str, jaxpr: Any) -> int:
    """Counts a primitive in a jaxpr, and in the jaxprs in it."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == name
        inner = [value for value in equation.params.values() if hasattr(value, "eqns")]
        count += sum(number_of(name, getattr(value, "jaxpr", value)) for value in inner)
    return count


# -- derivatives


@row("gradient")
def gradient(jit: Any) -> Any:
    return jax.grad(jit(loss))(weights(), data())


@row("gradient, inside of jax.jit")
def gradient_in_jit(jit: Any) -> Any:
    return jax.jit(jax.grad(jit(loss)))(weights(), data())


@row("gradient, compiled itself", slow=True)
def compiled_gradient(jit: Any) -> Any:
    return jit(jax.grad(jit(loss)))(weights(), data())


@row("gradient with in_shardings, inside of jax.jit", slow=True)
def gradient_with_shardings(jit: Any) -> Any:
    f = jit(loss, in_shardings=(on(None, "y"), on("x")))
    return jax.jit(jax.grad(f, argnums=(0, 1)))(weights(), jax.device_put(data(), on("x")))


@row("value and gradient by several arguments", slow=True)
def value_and_gradient(jit: Any) -> Any:
    return jax.value_and_grad(jit(loss), argnums=(0, 1))(weights(), data())


@row("gradient with further results", slow=True)
def gradient_with_more(jit: Any) -> Any:
    f = jit(lambda w, x: (loss(w, x), {"sum": x.sum(), "numbers": jnp.arange(3)}))
    return jax.value_and_grad(f, has_aux=True)(weights(), data())


@row("gradient of a tree", slow=True)
def gradient_of_tree(jit: Any) -> Any:
    return jax.grad(jit(lambda p: loss(p["w"], p["x"])))({"w": weights(), "x": data()})


@row("gradient by a keyword argument's value", slow=True)
def gradient_of_keyword(jit: Any) -> Any:
    f = jit(lambda *, a, b: (a * b).sum())
    return jax.grad(lambda a: f(a=a, b=2.0))(data())


@row("gradient beside a static argument", slow=True)
def gradient_beside_static(jit: Any) -> Any:
    return jax.grad(jit(lambda n, x: (x**n).sum(), static_argnums=0), argnums=1)(3, data())


@row("gradient beside integers", slow=True)
def gradient_beside_integers(jit: Any) -> Any:
    return jax.grad(jit(lambda x, i: x[i].sum()))(data(), jnp.array([1, 2]))


@row("gradient by a value that the function closes over")
def gradient_of_closure(jit: Any) -> Any:
    return jax.grad(lambda w: jit(lambda x: loss(w, x))(data()))(weights())


@row("gradient of a scalar", devices=1)
def gradient_of_scalar(jit: Any) -> Any:
    return jax.grad(jit(lambda v: jnp.sin(v) * v))(jnp.float32(1.3))


@row("third derivative", devices=1, slow=True)
def third_derivative(jit: Any) -> Any:
    return jax.grad(jax.grad(jax.grad(jit(lambda v: jnp.sin(v) * v))))(jnp.float32(1.3))


@row("gradient through complex numbers", slow=True)
def gradient_through_complex(jit: Any) -> Any:
    return jax.grad(jit(lambda x: jnp.abs(x * 1j + jnp.fft.fft(x)).sum()))(data() + 1)


@row("gradient of a holomorphic function", devices=1, slow=True)
def holomorphic_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda z: (z * z * z).sum()), holomorphic=True)(line() + 1j)


@row("gradient with random keys")
def gradient_with_keys(jit: Any) -> Any:
    f = jit(lambda x, key: (x * jax.random.normal(key, x.shape)).sum())
    return jax.grad(f)(data(), jax.random.key(3))


@row("gradient that is zero", slow=True)
def zero_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda x, y: y.sum() + jnp.sum(jnp.round(x))))(data(), weights())


@row("gradient that stops", slow=True)
def stopped_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda x: (jax.lax.stop_gradient(x) * x).sum()))(data())


@row("gradient by integers", devices=1)
def gradient_by_integers(jit: Any) -> Any:
    return jax.grad(jit(lambda i: (i * 2).sum()))(jnp.arange(3))


@row("gradient of a vector", devices=1)
def gradient_of_vector(jit: Any) -> Any:
    return jax.grad(jit(jnp.sin))(line())


@row("directional derivative")
def jvp(jit: Any) -> Any:
    return jax.jvp(jit(loss), (weights(), data()), (data(), weights()))


@row("jax.vjp", slow=True)
def vjp(jit: Any) -> Any:
    result, pull = jax.vjp(jit(lambda w: w @ w), weights())
    return result, pull(data())


@row("jax.linearize", slow=True)
def linearize(jit: Any) -> Any:
    result, push = jax.linearize(jit(lambda w: w @ w), weights())
    return result, push(data()), push(weights())


@row("jax.linear_transpose")
def linear_transpose(jit: Any) -> Any:
    return jax.linear_transpose(jit(lambda x: x * 3 + x.T), data())(weights())


@row("Hessian", slow=True)
def hessian(jit: Any) -> Any:
    return jax.hessian(jit(lambda v: jnp.sin(v * v[0]).sum()))(line())


@row("Jacobian, forward and reverse", slow=True)
def jacobians(jit: Any) -> Any:
    f = jit(lambda v: jnp.sin(v * v[0]))
    return jax.jacfwd(f)(line()), jax.jacrev(f)(line())


@row("product of a Hessian and a vector", slow=True)
def hessian_vector(jit: Any) -> Any:
    return jax.jvp(jax.grad(jit(lambda w: jnp.sin(w @ w).sum())), (weights(),), (data(),))[1]


@row("custom derivative inside, reverse", slow=True)
def custom_vjp_inside(jit: Any) -> Any:
    custom = jax.custom_vjp(jnp.sin)
    custom.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * 3.0 * x,))
    return jax.grad(jit(lambda x: custom(x).sum()))(data())


@row("custom derivative inside, forward", slow=True)
def custom_jvp_inside(jit: Any) -> Any:
    custom = jax.custom_jvp(jnp.sin)
    custom.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0] * 5))
    return jax.jvp(jit(custom), (data(),), (weights(),)), jax.grad(jit(lambda x: custom(x).sum()))(data())


@row("custom derivative outside", slow=True)
def custom_vjp_outside(jit: Any) -> Any:
    sine, cosine = jit(jnp.sin), jit(jnp.cos)
    custom = jax.custom_vjp(lambda x: sine(x))
    custom.defvjp(lambda x: (sine(x), x), lambda x, g: (g * cosine(x),))
    return jax.grad(lambda x: custom(x).sum())(data())


@row("compiled function in a compiled function", slow=True)
def nested(jit: Any) -> Any:
    inner = jit(lambda x: jnp.sin(x) @ x)
    return jax.grad(jit(lambda x: inner(x).sum()))(data())


@row("step of an optimizer", slow=True)
def optimizer(jit: Any) -> Any:
    f = jit(loss)
    step = jit(lambda w, x: jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(f)(w, x)))
    return step(weights(), data())


# -- maps


@row("jax.vmap")
def vmap(jit: Any) -> Any:
    return jax.vmap(jit(lambda v: jnp.cumsum(v) * v[0]))(data())


@row("jax.vmap with in_axes and out_axes", slow=True)
def vmap_axes(jit: Any) -> Any:
    return jax.vmap(jit(lambda a, b: (a @ b, b * 2)), in_axes=(1, None), out_axes=(0, None))(data(), weights())


@row("jax.vmap with a named axis", slow=True)
def vmap_named(jit: Any) -> Any:
    return jax.vmap(jit(lambda v: v / jax.lax.psum(v, "i")), axis_name="i")(data() + 1)


@row("jax.vmap with spmd_axis_name")
def vmap_spmd(jit: Any) -> Any:
    inner = jit(lambda v: jax.lax.with_sharding_constraint(v * 2, on("y")))
    return jax.jit(jax.vmap(inner, spmd_axis_name="x"))(data())


@row("jax.vmap with in_shardings", slow=True)
def vmap_with_shardings(jit: Any) -> Any:
    return jax.vmap(jit(lambda v: v[::-1], in_shardings=on("y"), out_shardings=on("y")))(
        jax.device_put(data(), on(None, "y"))
    )


@row("jax.vmap over random keys", slow=True)
def vmap_keys(jit: Any) -> Any:
    return jax.vmap(jit(lambda key: jax.random.normal(key, (3,))))(jax.random.split(jax.random.key(3), 4))


@row("jax.vmap in jax.vmap", slow=True)
def vmap_twice(jit: Any) -> Any:
    return jax.vmap(jax.vmap(jit(lambda a, b: a * b + 1), (0, None)), (None, 0))(line(), line())


@row("gradients of each example", slow=True)
def gradients_of_examples(jit: Any) -> Any:
    return jax.vmap(jax.grad(jit(loss)), in_axes=(None, 0))(weights(), data())


@row("gradient of a mapped function", slow=True)
def gradient_of_mapped(jit: Any) -> Any:
    f = jit(loss)
    return jax.grad(lambda w: jax.vmap(f, in_axes=(None, 0))(w, data()).sum())(weights())


# -- control flow


@row("in jax.lax.scan")
def scan(jit: Any) -> Any:
    sine = jit(jnp.sin)
    return jax.lax.scan(lambda carry, x: (sine(carry) + x, carry.sum()), line(), data())


@row("gradient of jax.lax.scan", slow=True)
def gradient_of_scan(jit: Any) -> Any:
    step = jit(lambda w, carry: jnp.tanh(carry @ w))

    def run(w: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (step(w, carry), None), data(), None, length=3)[0].sum()

    return jax.grad(run)(weights())


@row("gradient of jax.lax.scan inside", slow=True)
def gradient_of_scan_inside(jit: Any) -> Any:
    def run(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=3)[0].sum()

    return jax.grad(jit(run))(weights(), data())


@row("in jax.lax.while_loop")
def while_loop(jit: Any) -> Any:
    sine = jit(jnp.sin)
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, sine(c[1])), (0, data()))


@row("directional derivative of jax.lax.fori_loop", slow=True)
def fori_loop(jit: Any) -> Any:
    sine = jit(jnp.sin)
    return jax.jvp(lambda x: jax.lax.fori_loop(0, 3, lambda _, c: sine(c), x), (data(),), (weights(),))


@row("gradient of jax.lax.cond", slow=True)
def cond(jit: Any) -> Any:
    sine, cosine = jit(lambda x: jnp.sin(x).sum()), jit(lambda x: jnp.cos(x).sum())
    return jax.grad(lambda x: jax.lax.cond(x[0, 0] < 3, sine, cosine, x))(data())


@row("in jax.lax.map", slow=True)
def lax_map(jit: Any) -> Any:
    return jax.lax.map(jit(lambda v: v / v.sum()), data() + 1)


# -- checkpoints


def saved_dots(jit: Any, policy: Any) -> Any:
    f = jit(lambda w, x: jnp.sin(checkpoint_name(jnp.tanh(x @ w), "hidden") @ w).sum())
    gradient = jax.grad(jax.checkpoint(f, policy=policy))
    return gradient(weights(), data()), number_of("dot_general", jax.make_jaxpr(gradient)(weights(), data()).jaxpr)


@row("jax.checkpoint")
def checkpoint(jit: Any) -> Any:
    return saved_dots(jit, None)


@row("jax.checkpoint saves products inside")
def checkpoint_dots(jit: Any) -> Any:
    return saved_dots(jit, POLICIES.dots_saveable)


@row("jax.checkpoint saves named values inside", slow=True)
def checkpoint_names(jit: Any) -> Any:
    return saved_dots(jit, POLICIES.save_only_these_names("hidden"))


@row("jax.checkpoint saves everything", slow=True)
def checkpoint_everything(jit: Any) -> Any:
    return saved_dots(jit, POLICIES.everything_saveable)


@row("jax.checkpoint inside, in jax.jit", slow=True)
def checkpoint_inside(jit: Any) -> Any:
    return jax.jit(jax.grad(jit(jax.checkpoint(loss, policy=POLICIES.dots_saveable))))(weights(), data())


@row("jax.checkpoint of layers in a scan", slow=True)
def checkpoint_in_scan(jit: Any) -> Any:
    layer = jax.checkpoint(jit(lambda w, x: jnp.tanh(x @ w)))

    def run(w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (layer(w, x), None), data(), None, length=2)[0].sum()

    return jax.jit(jax.grad(run))(weights())


# -- manual regions


def manual(function: Any, **options: Any) -> Any:
    return jax.shard_map(function, mesh=mesh(), in_specs=P("x", "y"), out_specs=P(None, "y"), **options)


@row("in jax.shard_map")
def in_shard_map(jit: Any) -> Any:
    sine = jit(jnp.sin)
    return jax.jit(manual(lambda x: jax.lax.psum(sine(x), "x")))(data())


@row("collectives inside, in jax.shard_map without jax.jit", slow=True)
def collectives_in_shard_map(jit: Any) -> Any:
    return manual(jit(lambda x: jax.lax.psum(jnp.sin(x), "x")))(data())


@row("gradient of jax.shard_map", slow=True)
def gradient_of_shard_map(jit: Any) -> Any:
    f = jit(lambda x: jax.lax.psum(jnp.sin(x), "x"))
    return jax.grad(lambda x: manual(f)(x).sum())(data())


@row("in jax.shard_map over some axes", slow=True)
def in_partial_shard_map(jit: Any) -> Any:
    f = jit(lambda x: jax.lax.psum(jnp.sin(x) @ x.T, "x"))
    g = jax.shard_map(f, mesh=mesh(), in_specs=P("x"), out_specs=P(), axis_names={"x"})
    return jax.jit(g)(data())


@row("gradient of jax.shard_map inside", slow=True)
def gradient_of_inner_shard_map(jit: Any) -> Any:
    return jax.grad(jit(lambda x: manual(lambda t: jax.lax.psum(t * t, "x"))(x).sum()))(data())


# -- shapes


@row("jax.eval_shape", devices=1)
def eval_shape(jit: Any) -> Any:
    return jax.eval_shape(jit(loss), weights(), data()).shape


@row("jax.make_jaxpr", devices=1)
def make_jaxpr(jit: Any) -> Any:
    jaxpr = jax.make_jaxpr(jit(loss))(weights(), data())
    return len(jaxpr.eqns), number_of("dot_general", jaxpr.jaxpr), jaxpr.out_avals[0].shape


@row("jax.closure_convert", devices=1, slow=True)
def closure_convert(jit: Any) -> Any:
    def run(w: Any) -> Any:
        converted, values = jax.closure_convert(jit(lambda x: loss(w, x)), data())
        return converted(data(), *values)

    return jax.grad(run)(weights())
