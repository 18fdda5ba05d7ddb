"""JAX functions as users write them, sharded over a mesh of 2 x 4 devices, uneven inside in places.

`FUNCTIONS` maps a name to a function that takes the mesh and gives a `Case`.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Case:
    """A function, its arguments, and options for `jax.jit`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


class Adam(NamedTuple):
    """The state of the optimizer."""

    step: Any
    mean: Any
    square: Any


FUNCTIONS: dict[str, Callable[[Any], Case]] = {}


def function(make: Callable[[Any, Any, Any], Case]) -> Callable[[Any, Any, Any], Case]:
    """Registers a maker, which takes jax, jax.numpy and a `Placer`."""

    def made(mesh: Any) -> Case:
        jax = importlib.import_module("jax")
        return make(jax, jax.numpy, Placer(jax, mesh))

    FUNCTIONS[make.__name__] = made
    return make


class Placer:
    """Makes sharded arrays, and constrains values inside of functions."""

    def __init__(self, jax: Any, mesh: Any) -> None:
        self.jax, self.mesh, self.rng = jax, mesh, np.random.default_rng(0)

    def sharding(self, *spec: Any) -> Any:
        return self.jax.sharding.NamedSharding(self.mesh, self.jax.sharding.PartitionSpec(*spec))

    def normal(self, *dims: int, spec: tuple[Any, ...] = (), kind: Any = np.float32) -> Any:
        return self.jax.device_put(self.rng.standard_normal(dims).astype(kind), self.sharding(*spec))

    def integers(self, high: int, *dims: int, spec: tuple[Any, ...] = ()) -> Any:
        return self.jax.device_put(self.rng.integers(0, high, dims).astype(np.int32), self.sharding(*spec))

    def constrain(self, value: Any, *spec: Any) -> Any:
        return self.jax.lax.with_sharding_constraint(value, self.sharding(*spec))


@function
def perceptron_step_with_donation(jax: Any, jnp: Any, at: Any) -> Case:
    def loss(params: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.gelu(x @ params["w1"] + params["b1"])
        return jnp.mean((hidden @ params["w2"] - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    params = {"w1": at.normal(16, 32, spec=(None, "y")), "b1": at.normal(32, spec=("y",)),
              "w2": at.normal(32, 8, spec=("y",))}
    return Case(step, (params, at.normal(24, 16, spec=("x",)), at.normal(24, 8, spec=("x",))), {"donate_argnums": 0})


@function
def adam_over_scanned_layers(jax: Any, jnp: Any, at: Any) -> Case:
    def loss(weights: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return at.constrain(jnp.tanh(h @ w), "x", None), None

        return jnp.mean(jax.lax.scan(layer, x, weights)[0] ** 2)

    def step(weights: Any, state: Adam, x: Any) -> Any:
        g = jax.grad(loss)(weights, x)
        mean, square = 0.9 * state.mean + 0.1 * g, 0.99 * state.square + 0.01 * g * g
        weights = weights - 0.01 * mean / (jnp.sqrt(square) + 1e-6)
        return weights, Adam(state.step + 1, mean, square)

    spec = (None, "y", None)
    weights = at.normal(3, 16, 16, spec=spec)
    state = Adam(at.integers(9), at.normal(3, 16, 16, spec=spec), abs(at.normal(3, 16, 16, spec=spec)))
    return Case(step, (weights, state, at.normal(8, 16, spec=("x",))), {"donate_argnums": (0, 1)})


@function
def attention_step(jax: Any, jnp: Any, at: Any) -> Case:
    def loss(params: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bhsd", x, params[name]) for name in "qkv")
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2.0
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -1e9)
        out = jnp.einsum("bhqk,bhkd,hdm->bqm", jax.nn.softmax(scores), v, params["o"])
        return jnp.mean((x + out) ** 2)

    params = {name: at.normal(8, 4, 4, spec=(None, "y")) for name in "qkv"} | {"o": at.normal(4, 4, 8, spec=("y",))}
    return Case(jax.value_and_grad(loss), (params, at.normal(4, 6, 8, spec=("x",))))


@function
def mixture_of_experts(jax: Any, jnp: Any, at: Any) -> Case:
    def layer(x: Any, gate: Any, w1: Any, w2: Any) -> Any:
        gates = jax.nn.softmax(jnp.einsum("gsm,me->gse", x, gate))
        first = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
        place = jnp.cumsum(first, 1) * first - 1
        dispatch = first[..., None] * jax.nn.one_hot(place.astype(jnp.int32), 4)
        combine = gates[..., None] * dispatch
        tokens = at.constrain(jnp.einsum("gsec,gsm->egcm", dispatch, x), ("x", "y"))
        hidden = jax.nn.relu(jnp.einsum("egcm,emh->egch", tokens, w1))
        return jnp.einsum("gsec,egcm->gsm", combine, jnp.einsum("egch,ehm->egcm", hidden, w2))

    experts = (("x", "y"),)
    return Case(layer, (at.normal(8, 12, 6, spec=experts), at.normal(6, 8), at.normal(8, 6, 10, spec=experts),
                        at.normal(8, 10, 6, spec=experts)))


@function
def uneven_inside(jax: Any, jnp: Any, at: Any) -> Case:
    def f(x: Any, w: Any) -> Any:
        h = at.constrain(jnp.sin(x @ w), None, ("x", "y"))  # 10 columns on 8 devices
        h = at.constrain(jnp.concatenate([h, h[:, :3]], 1), "y", "x")
        return jnp.sort(h, 1), h.max(0), (h - h.mean(1, keepdims=True)).var()

    return Case(f, (at.normal(9, 16), at.normal(16, 10, spec=("y",))))


@function
def halo_of_convolutions(jax: Any, jnp: Any, at: Any) -> Case:
    def loss(kernels: Any, x: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.relu(jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return jnp.mean(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"))

    kernels = [at.normal(3, 3, 2, 4), at.normal(3, 3, 4, 3)]
    return Case(jax.value_and_grad(loss), (kernels, at.normal(2, 16, 16, 2, spec=(None, "y", "x"))))


@function
def small_u_net(jax: Any, jnp: Any, at: Any) -> Case:
    def conv(x: Any, kernel: Any, stride: int = 1) -> Any:
        numbers = ("NDHWC", "DHWIO", "NDHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride,) * 3, "SAME", dimension_numbers=numbers)

    def loss(k: Any, x: Any) -> Any:
        top = jax.nn.relu(conv(x, k["in"]))
        low = jax.nn.relu(conv(top, k["down"], 2))
        up = jnp.repeat(jnp.repeat(jnp.repeat(low, 2, 1), 2, 2), 2, 3)
        return jnp.mean(conv(jnp.concatenate([top, up], -1), k["out"]) ** 2)

    kernels = {"in": at.normal(3, 3, 3, 1, 2), "down": at.normal(3, 3, 3, 2, 2), "out": at.normal(3, 3, 3, 4, 1)}
    return Case(jax.grad(loss), (kernels, at.normal(1, 8, 8, 4, 1, spec=(None, "y", "x"))))


@function
def embedding_and_its_gradient(jax: Any, jnp: Any, at: Any) -> Case:
    def loss(table: Any, tokens: Any) -> Any:
        return jnp.sum(jnp.tanh(table[tokens]) ** 2)

    return Case(jax.value_and_grad(loss), (at.normal(32, 6, spec=("y",)), at.integers(32, 8, 5, spec=("x",))))


@function
def mixed_precision_step(jax: Any, jnp: Any, at: Any) -> Case:
    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.sum(jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32))

        return w - 0.01 * jax.grad(loss)(w)

    return Case(step, (at.normal(16, 8, spec=("y",)), at.normal(8, 16, spec=("x",))))


@function
def loop_until_small(jax: Any, jnp: Any, at: Any) -> Case:
    def f(x: Any) -> Any:
        return jax.lax.while_loop(lambda s: jnp.abs(s[1]).sum() > 1.0, lambda s: (s[0] + 1, s[1] * 0.7), (0, x))

    return Case(f, (at.normal(8, 8, spec=("x", "y")),))


@function
def branches(jax: Any, jnp: Any, at: Any) -> Case:
    def f(n: Any, x: Any) -> Any:
        x = jax.lax.switch(n, [jnp.sin, lambda v: v @ v.T, lambda v: v * 2], x)
        return jax.lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: -v, x)

    return Case(f, (at.integers(3), at.normal(8, 8, spec=("y", "x"))))


@function
def sorting_and_largest(jax: Any, jnp: Any, at: Any) -> Case:
    return Case(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 0), jax.lax.top_k(x.T, 3)), (at.normal(16, 4, spec=("y",)),))


@function
def random_keys(jax: Any, jnp: Any, at: Any) -> Case:
    def f(key: Any, x: Any) -> Any:
        key, other = jax.random.split(key)
        return key, jnp.where(jax.random.bernoulli(other, 0.5, x.shape), x, 0.0)

    return Case(f, (jax.random.key(7), at.normal(8, 8, spec=("x", "y"))))


@function
def nested_structures(jax: Any, jnp: Any, at: Any) -> Case:
    def f(tree: Any, *, scale: Any) -> Any:
        return {"sum": tree["a"][0] + tree["a"][1].b * scale, "none": None, "same": [tree]}

    class Pair(NamedTuple):
        a: Any
        b: Any

    a = at.normal(8, 4, spec=("x", "y"))
    return Case(lambda tree, scale: f(tree, scale=scale), ({"a": (a, Pair(None, a))}, np.float32(2)))


@function
def static_arguments(jax: Any, jnp: Any, at: Any) -> Case:
    def f(x: Any, axis: int, x2: Any, mode: str) -> Any:
        return getattr(jnp, mode)(x, axis) + x2.sum()

    x = at.normal(8, 8, spec=("y",))
    return Case(f, (x, -1, x, "cumsum"), {"static_argnums": (1, -1)})


@function
def fourier_transform(jax: Any, jnp: Any, at: Any) -> Case:
    return Case(lambda x: jnp.abs(jnp.fft.fft2(x)), (at.normal(8, 16, spec=("x", "y")),))


@function
def cholesky_and_solve(jax: Any, jnp: Any, at: Any) -> Case:
    def f(x: Any, b: Any) -> Any:
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(x @ x.T + 8 * jnp.eye(8)), b)

    return Case(f, (at.normal(8, 8, spec=("x",)), at.normal(8, 4, spec=(None, "y"))))


@function
def manual_region(jax: Any, jnp: Any, at: Any) -> Case:
    P = jax.sharding.PartitionSpec

    def ring(x: Any) -> Any:
        return x + jax.lax.ppermute(x, "y", [(n, (n + 1) % 4) for n in range(4)]) + jax.lax.psum(x, "x")

    region = jax.shard_map(ring, mesh=at.mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    return Case(lambda x: jnp.cos(region(jnp.sin(x))).sum(0), (at.normal(8, 8, spec=("x", "y")),))


@function
def cumulative_and_associative(jax: Any, jnp: Any, at: Any) -> Case:
    def f(x: Any) -> Any:
        return jnp.cumsum(x, 0), jax.lax.associative_scan(jnp.multiply, 1 + 0.1 * x), jnp.roll(x, 3, 0)

    return Case(f, (at.normal(16, 3, spec=("y",)),))


@function
def rematerialized_gradient(jax: Any, jnp: Any, at: Any) -> Case:
    layer = jax.checkpoint(lambda x, w: jnp.tanh(x @ w))
    return Case(jax.grad(lambda w, x: layer(layer(x, w), w).sum()),
                (at.normal(8, 8, spec=("x", "y")), at.normal(4, 8, spec=("x",))))


@function
def closed_over_arrays(jax: Any, jnp: Any, at: Any) -> Case:
    table = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
    return Case(lambda x: x @ table, (at.normal(4, 8, spec=("x", "y")),))


@function
def pipeline_by_shifting(jax: Any, jnp: Any, at: Any) -> Case:
    def run(weights: Any, inputs: Any) -> Any:
        def tick(buffer: Any, x: Any) -> Any:
            buffer = at.constrain(jnp.roll(buffer, 1, 0).at[0].set(x), "y")
            buffer = jnp.tanh(jnp.einsum("sbm,smn->sbn", buffer, weights))
            return buffer, buffer[-1]

        return jax.lax.scan(tick, jnp.zeros((4, 2, 6)), inputs)[1]

    return Case(run, (at.normal(4, 6, 6, spec=("y",)), at.normal(7, 2, 6)))
