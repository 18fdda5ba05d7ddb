"""Other transformations of compiled functions, and compiled functions inside of others."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from support.jax_arrays import P, data, line, loss, mesh, number_of, on, weights
from support.jax_rows import row

POLICIES: Any = jax.checkpoint_policies


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


@row("inside of jax.lax.scan")
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


@row("jax.checkpoint saves products inside", slow=True)
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


@row("inside of jax.shard_map")
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
