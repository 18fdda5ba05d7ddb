"""Pipelines by a shifting buffer: one program has all stages, vectorised over a divided dimension T (GSPMD, 3.3).

In each iteration all stages compute, each on another micro-batch, and pass results on: the state shifts along T, which
is a collective-permute. Micro-batches wait in a stream whose columns shift the other way; results fill their places
from the last stage, so nothing is ever gathered. With several rounds (circular) a stage has several parts of the
layers, and micro-batches go around. The share of idle iterations is (T - 1) / (rounds * micro-batches + T - 1).
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .dense import Transformer
from .layers import cross_entropy
from .layout import Layout, Sizes, Table, Tree, stacked
from .training import Program, training


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def rolled(x: jax.Array, places: int) -> jax.Array:
    """Rolls along the first dimension. Its gradient is a roll as well; JAX's own is slices, paddings and a sum."""
    return jnp.roll(x, places, axis=0)


rolled.defvjp(lambda x, places: (rolled(x, places), None), lambda places, _, gradient: (rolled(gradient, -places),))


def pipelined(
    stage: Callable[[Tree, jax.Array], jax.Array], weights: Tree, stream: jax.Array, rounds: int,
    place: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """Takes micro-batches through `rounds` of all stages.

    `stream` is [T, m, ..]: T*m micro-batches in order, at least T of them. `weights` are [Z, T, ..], of which `stage`
    takes those of one round and stage. `place` constrains values [T, ..]. Returns the results, arranged as the stream.
    """
    stages, slots = stream.shape[:2]
    count = stages * slots
    number = jnp.arange(stages)
    column = number.reshape(-1, *[1] * (stream.ndim - 2))
    all_stages = jax.vmap(stage, spmd_axis_name="stage")

    @jax.checkpoint  # else every iteration would keep the weights of its round for the gradient
    def stage_all(weights: Tree, x: jax.Array, step: jax.Array) -> jax.Array:
        if rounds == 1:
            return all_stages(jax.tree.map(lambda w: w[0], weights), x)
        turn = jnp.clip((step - number) // count, 0, rounds - 1)
        of_round = jax.vmap(lambda w, turn: w[turn], in_axes=(1, 0))
        return all_stages(jax.tree.map(lambda w: of_round(w, turn), weights), x)

    def at(values: jax.Array, slot: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(values, slot, axis=1, keepdims=False)

    def put(values: jax.Array, x: jax.Array, slot: jax.Array) -> jax.Array:
        return lax.dynamic_update_index_in_dim(values, x, slot, axis=1)

    def iteration(carry: tuple[jax.Array, ...], step: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        stream, shifted, *waiting = carry
        waits = at(stream, step % slots)
        first = jnp.where(step < count, waits, at(waiting[0], step % count)) if rounds > 1 else waits
        state = place(stage_all(weights, place(jnp.where(column == 0, first, shifted)), step))
        stream = put(stream, place(jnp.where(column == stages - 1, state, rolled(waits, -1))), step % slots)
        shifted = place(rolled(state, 1))
        return (stream, shifted, *(put(w, shifted, (step - stages + 1) % count) for w in waiting)), None

    empty = jnp.zeros_like(stream[:, 0])
    waiting = [jnp.zeros((stages, count, *stream.shape[2:]), stream.dtype)] if rounds > 1 else []
    steps = jnp.arange(rounds * count + stages - 1)
    (stream, *_), _ = lax.scan(iteration, (stream, place(empty), *waiting), steps)
    return jnp.roll(stream, 1 - stages, axis=1)  # the first result took the place of iteration T - 1


@dataclass(frozen=True)
class Pipeline:
    """A transformer in stages; its batch is that of one micro-batch."""

    model: Transformer
    stages: int
    microbatches: int
    rounds: int = 1

    @property
    def sizes(self) -> Sizes:
        return {**self.model.sizes, "T": self.stages, "Z": self.rounds, "W": self.microbatches // self.stages,
                "L": self.model.layers // (self.stages * self.rounds)}  # fmt: skip

    def weights(self) -> Tree:
        """Returns all weights, as letters; those of layers are stacked by round, stage and layer."""
        tree = self.model.weights()
        return {**tree, "layers": stacked("Z", stacked("T", stacked("L", self.model.layer())))}

    def loss(self, w: Tree, tokens: jax.Array, targets: jax.Array, layout: Layout) -> jax.Array:
        """Returns the mean cross entropy of the targets [T, W, B, S]."""
        model, w = self.model, self.model.converted(w)

        def plain(x: jax.Array, letters: str) -> jax.Array:  # stages and micro-batches are dimensions here
            return layout.place(x, "TW" + letters)

        def logits(x: jax.Array) -> jax.Array:
            return model.logits(w, x, lambda x, _: x)

        stream = plain(jax.vmap(jax.vmap(lambda t: model.embed(w, t, lambda x, _: x)))(tokens), "BSM")
        stream = pipelined(lambda w, x: model.repeat(w, x, layout.place), w["layers"], stream, self.rounds,
                           lambda x: layout.place(x, "TBSM"))  # fmt: skip
        return jnp.mean(jax.vmap(jax.vmap(lambda x, t: cross_entropy(logits(x), t)))(plain(stream, "BSM"), targets))


def pipeline(model: Pipeline, axes: Mapping[str, int], table: Table) -> Program:
    """Returns the training step on a mesh with the axis `stage` beside those of the table."""
    inside = Layout(axes, table).stacked("L")
    layout = inside.stacked("W").stacked("T", "stage").stacked("Z")
    tokens = layout.argument("TWBS", model.sizes, "int32")

    def loss(w: Tree, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        return model.loss(w, tokens, targets, layout)

    return training(layout, model.sizes, model.weights(), loss, (tokens, tokens))

