"""Greedy decoding with a cache of keys and values, divided by heads, or by the length of the context.

Each step looks up the last words [B], writes their keys and values to the cache at the step's position, and attends to
all positions so far. Only vectors per word travel: two all-reduces of [B, M] per layer, or, where the context is
divided, the maxima, sums and mixed values of the parts of a softmax. The cache stays where it is.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax

from .dense import MEGATRON, Transformer
from .layers import F32, feed_forward, product, rms_norm
from .layout import Layout, Table, Tree
from .training import Program

HEADS: Table = {**MEGATRON, "B": ("data",), "BSND": ("data", None, "model", None)}
"""Megatron's weights; the cache [B, S, N, D] divided by batch and heads."""

CONTEXT: Table = {"B": (), "BSND": (None, "data", None, None)}
"""Weights left to propagation, hence whole; the cache divided by its length."""


def attend(w: Tree, x: jax.Array, cache: Tree, position: jax.Array, layout: Layout) -> tuple[jax.Array, Tree]:
    """Computes attention of one word per row [B, 1, M] to the cache, and returns the cache with the word."""
    query = product("BSM,MNQD->BSNQD", x, w["query"])
    fresh = {name: product("BSM,MND->BSND", x, w[name]) for name in ("key", "value")}
    cache = {name: layout.place(lax.dynamic_update_slice_in_dim(old, fresh[name], position, axis=1), "BSND")
             for name, old in cache.items()}  # fmt: skip
    scores = jnp.einsum("BSNQD,BTND->BNQST", query, cache["key"]).astype(F32) / math.sqrt(query.shape[-1])
    known = jnp.arange(scores.shape[-1]) <= position
    weights = jax.nn.softmax(jnp.where(known, scores, -1e9), axis=-1).astype(x.dtype)
    return product("BSNQD,NQDM->BSM", jnp.einsum("BNQST,BTND->BSNQD", weights, cache["value"]), w["output"]), cache


def decoding(model: Transformer, axes: Mapping[str, int], table: Table, steps: int) -> Program:
    """Returns `(weights, cache, words, position) -> (cache, words of all steps)`; the cache keeps its memory."""
    layout = Layout(axes, table).stacked("L")
    plain = Layout(axes, {})

    def word(w: Tree, cache: Tree, words: jax.Array, position: jax.Array) -> tuple[Tree, jax.Array]:
        x = w["embedding"].astype(model.dtype)[words][:, None]

        def layer(x: jax.Array, given: Tree) -> tuple[jax.Array, Tree]:
            w, cache = given
            y, cache = attend(w["attention"], rms_norm(x, w["attention_norm"]), cache, position, layout)
            x = x + y
            return x + feed_forward(w["dense"], rms_norm(x, w["dense_norm"]), plain.place), cache

        x, cache = lax.scan(layer, x, (w["layers"], cache))
        return cache, jnp.argmax(model.logits(w, x, plain.place)[:, 0], axis=-1).astype(jnp.int32)

    def decode(w: Tree, cache: Tree, words: jax.Array, position: jax.Array) -> tuple[Tree, jax.Array]:
        def step(state: Tree, number: jax.Array) -> tuple[Tree, jax.Array]:
            cache, words = state
            cache, words = word(w, cache, words, position + number)
            return (cache, layout.place(words, "B")), words

        (cache, _), found = lax.scan(step, (cache, words), jnp.arange(steps))
        return cache, found.T

    weights = model.weights()
    cache = {name: layout.argument("LBSND", model.sizes, model.dtype) for name in ("key", "value")}
    words, position = layout.argument("B", model.sizes, "int32"), jax.ShapeDtypeStruct((), "int32")
    arguments = (layout.arguments(weights, model.sizes, model.dtype), cache, words, position)
    results = (jax.tree.map(lambda shape: shape.sharding, cache), None)
    return Program(layout, decode, arguments, weights, model.sizes, results, donated=(1,))
