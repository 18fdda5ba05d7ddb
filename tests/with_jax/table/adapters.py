"""Compiled functions of modules: of Equinox and of Flax NNX, where they are installed."""

# The annotations of JAX, Equinox and Flax leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import hloom.jax
import jax
import jax.numpy as jnp
from support.jax_arrays import data
from support.jax_rows import Function, row

HAS_EQUINOX = find_spec("equinox") is not None
HAS_FLAX = find_spec("flax") is not None and find_spec("optax") is not None


def equinox_row(title: str, **options: Any) -> Callable[[Function], Function]:
    return row(f"Equinox: {title}", **options) if HAS_EQUINOX else lambda function: function


def flax_row(title: str, **options: Any) -> Callable[[Function], Function]:
    return row(f"Flax NNX: {title}", **options) if HAS_FLAX else lambda function: function


def package(name: str) -> Any:
    return importlib.import_module(name)


def filter_jit(jit: Any) -> Any:
    return package("equinox").filter_jit if jit is jax.jit else hloom.jax.filter_jit


def nnx_jit(jit: Any) -> Any:
    return package("flax.nnx").jit if jit is jax.jit else hloom.jax.nnx_jit


# -- Equinox


def perceptron() -> Any:
    return package("equinox").nn.MLP(8, 4, 16, 1, key=jax.random.key(0))


def arrays(tree: Any) -> Any:
    return package("equinox").filter(tree, package("equinox").is_array)


def squares(model: Any, x: Any) -> Any:
    return (jax.vmap(model)(x) ** 2).sum()


@equinox_row("a module as an argument")
def module_argument(jit: Any) -> Any:
    return filter_jit(jit)(squares)(perceptron(), data("x"))


@equinox_row("a module as the function", slow=True)
def module_function(jit: Any) -> Any:
    return filter_jit(jit)(perceptron())(data("x")[0])


@equinox_row("a step of training", slow=True)
def module_step(jit: Any) -> Any:
    equinox = package("equinox")

    def step(model: Any, x: Any) -> Any:
        loss, gradient = equinox.filter_value_and_grad(squares)(model, x)
        return loss, equinox.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradient))

    loss, model = filter_jit(jit)(step)(perceptron(), data("x"))
    return loss, arrays(model), filter_jit(jit)(model)(data("x")[0])


@equinox_row("gradient of a compiled function", slow=True)
def module_gradient(jit: Any) -> Any:
    return arrays(package("equinox").filter_grad(filter_jit(jit)(squares))(perceptron(), data("x")))


@equinox_row("values that are no arrays", slow=True)
def module_constants(jit: Any) -> Any:
    f = filter_jit(jit)(lambda x, double, *, text: (x * 2 if double else x, text, jnp.sin, None))
    return [f(data("x"), double, text="a")[:2] for double in (True, False)]


@equinox_row("donation", slow=True)
def module_donation(jit: Any) -> Any:
    x = data("x") + 1
    return filter_jit(jit)(lambda x: x * 2, donate="all")(x), x.is_deleted()


@equinox_row("a method", slow=True)
def module_method(jit: Any) -> Any:
    class Linear(package("equinox").Module):
        w: Any

        @filter_jit(jit)
        def __call__(self, x: Any) -> Any:
            return x @ self.w

    return Linear(data("x").T)(data("x"))


@equinox_row("mapped", slow=True)
def module_mapped(jit: Any) -> Any:
    f = filter_jit(jit)(perceptron())
    return jax.vmap(lambda x: f(x))(data("x"))


@equinox_row("a static value without a hash", slow=True, fails=True)
def module_without_hash(jit: Any) -> Any:
    class Odd:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

    return filter_jit(jit)(lambda x, _: x)(data("x"), Odd())


# -- Flax


def network() -> Any:
    nnx = package("flax.nnx")

    class Network(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first, self.last = nnx.Linear(8, 16, use_bias=False, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)
            self.norm, self.drop = nnx.BatchNorm(16, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
            self.count = nnx.Variable(jnp.array(0))

        def __call__(self, x: Any) -> Any:
            self.count[...] = self.count[...] + 1
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    return Network


def state(module: Any) -> Any:
    """Returns the arrays of a module."""
    return jax.tree.leaves(package("flax.nnx").state(module))


@flax_row("steps of training", slow=True)
def train(jit: Any) -> Any:
    nnx, optax = package("flax.nnx"), package("optax")
    model = network()(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss, gradient = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradient)
        return loss

    compiled = nnx_jit(jit)(step)
    return [compiled(model, optimizer, data("x")) for _ in range(3)], state(model), state(optimizer)


@flax_row("a module is made", slow=True)
def made(jit: Any) -> Any:
    return state(nnx_jit(jit)(lambda: network()(package("flax.nnx").Rngs(0)))())


@flax_row("a module is called")
def module_called(jit: Any) -> Any:
    nnx = package("flax.nnx")
    return nnx_jit(jit)(lambda model, x, scale: model(x) * scale)(nnx.Linear(8, 4, rngs=nnx.Rngs(0)), data("x"), 3)


@flax_row("attributes are added", slow=True)
def added(jit: Any) -> Any:
    nnx = package("flax.nnx")
    model = nnx.Linear(8, 4, rngs=nnx.Rngs(0))

    def change(model: Any) -> Any:
        model.extra, model.flag = nnx.Variable(jnp.ones(3)), "yes"
        return model

    return nnx_jit(jit)(change)(model) is model, model.flag, state(model)


@flax_row("one module twice", slow=True)
def twice(jit: Any) -> Any:
    nnx = package("flax.nnx")
    model = nnx.Linear(8, 4, rngs=nnx.Rngs(0))

    def change(a: Any, b: Any) -> None:
        a.kernel[...] = a.kernel[...] * 2
        b.bias[...] = a.kernel[0] + a.bias[...]

    nnx_jit(jit)(change)(model, model)
    return state(model)


@flax_row("a method", slow=True)
def method(jit: Any) -> Any:
    nnx = package("flax.nnx")

    class Scale(nnx.Module):
        def __init__(self) -> None:
            self.w = nnx.Param(jnp.full((8,), 3.0))

        @nnx_jit(jit)
        def __call__(self, x: Any) -> Any:
            return x * self.w[...]

    return Scale()(data("x"))


@flax_row("random numbers go on", slow=True)
def rngs(jit: Any) -> Any:
    nnx = package("flax.nnx")
    source = nnx.Rngs(0)
    draw = nnx_jit(jit)(lambda rngs: jax.random.normal(rngs.params(), (4,)))
    return [draw(source) for _ in range(2)]
