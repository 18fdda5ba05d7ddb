"""Training steps: AdamW whose state is divided like the weights, and the program that a model makes of them."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import hloom
import hloom.jax
import jax
import jax.numpy as jnp

from .layout import Layout, Sizes, Tree, count


@dataclass(frozen=True)
class Program:
    """A function and the shapes of its arguments, with shardings on a mesh; nothing is allocated.

    `results` are shardings of the results, None where propagation decides. `weights` is the tree of letters of the
    parameters, `sizes` those of the letters. Arguments named by number in `donated` give their memory to results.
    `recomputed` says that layers are computed again in the backward pass.
    """

    layout: Layout
    function: Callable[..., Any]
    arguments: tuple[Tree, ...]
    weights: Tree
    sizes: Sizes
    results: Tree = None
    donated: tuple[int, ...] = ()
    recomputed: bool = False

    @property
    def parameters(self) -> int:
        """The number of parameters, from their shapes."""
        return count(self.weights, self.sizes)

    @property
    def annotations(self) -> tuple[int, int]:
        """The number of tensors with an annotation of ours, and that of all tensors: arrays of several elements that
        some instruction or parameter makes.
        """
        annotated = tensors = 0
        for computation in self.module:
            for instruction in computation:
                if instruction.opcode not in ("tuple", "get-tuple-element", "while", "call"):
                    tensors += instruction.shape.num_elements > 1
                    annotated += instruction.annotation is not None
        return annotated, tensors

    @cached_property
    def module(self) -> hloom.Module:
        """The program before partitioning."""
        jitted = jax.jit(self.function, out_shardings=self.results, donate_argnums=self.donated, keep_unused=True)
        return hloom.jax.from_jax(jitted, *self.arguments)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled decay of weights (Loshchilov and Hutter, 2019). A state holds `step`, and trees of fp32
    `weights`, `first` and `second` moments.
    """

    rate: float = 1e-3
    first: float = 0.9
    second: float = 0.99
    decay: float = 0.01

    def update(self, state: Tree, gradient: Tree) -> Tree:
        """Returns the next state."""
        step = state["step"] + 1
        correct = [1 / (1 - beta ** step.astype(jnp.float32)) for beta in (self.first, self.second)]
        first = jax.tree.map(lambda m, g: self.first * m + (1 - self.first) * g, state["first"], gradient)
        second = jax.tree.map(lambda v, g: self.second * v + (1 - self.second) * g * g, state["second"], gradient)

        def new(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            return w - self.rate * (correct[0] * m / (jnp.sqrt(correct[1] * v) + 1e-8) + self.decay * w)

        weights = jax.tree.map(new, state["weights"], first, second)
        return {"step": step, "weights": weights, "first": first, "second": second}


def training(
    layout: Layout, sizes: Sizes, weights: Tree, loss: Callable[..., jax.Array], batch: tuple[Tree, ...],
    optimizer: AdamW = AdamW(),
) -> Program:
    """Returns the training step `(state, *batch) -> (state, loss)` of `loss(weights, *batch)`. The new state lies where
    the old one was, and takes its memory.
    """

    def train_step(state: Tree, *batch: Tree) -> tuple[Tree, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(state["weights"], *batch)
        return optimizer.update(state, gradient), value

    masters = layout.arguments(weights, sizes)
    step = jax.ShapeDtypeStruct((), "int32", sharding=layout.sharding())
    state = {"step": step, "weights": masters, "first": masters, "second": masters}
    results = (jax.tree.map(lambda shape: shape.sharding, state), None)
    return Program(layout, train_step, (state, *batch), weights, sizes, results, donated=(0,))


def evaluation(
    layout: Layout, sizes: Sizes, weights: Tree, loss: Callable[..., jax.Array], batch: tuple[Tree, ...]
) -> Program:
    """Returns the loss alone, `(weights, *batch) -> loss`."""
    return Program(layout, loss, (layout.arguments(weights, sizes), *batch), weights, sizes)
