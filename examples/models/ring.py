"""Ring attention: the sequence is divided, and blocks of keys and values travel around the ring (Liu et al., 2023).

Written per device with `shard_map`. Each device keeps its queries; n - 1 times it passes keys and values on, so sends
are collective-permutes of one block and nothing is gathered. Softmax is computed block by block, from running maxima
and sums. The gradient sends the same blocks around once more, with their gradients, and computes scores again, so that
memory does not grow with the length of the ring.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from .layers import F32, product
from .layout import Layout, Sizes, Table, Tree
from .training import Program, training

RING: Table = {"BSM": ("data", "ring", None), "MND": (), "NDM": ()}
"""Activations by batch and sequence; weights whole."""


@dataclass(frozen=True)
class Blocks:
    """A device's view of the ring: the mesh axis, its devices, and the positions of rows in a block."""

    axis: str
    devices: int
    rows: int

    def onward(self, blocks: Tree) -> Tree:
        """Passes blocks to the next device."""
        pairs = [(n, (n + 1) % self.devices) for n in range(self.devices)]
        return jax.tree.map(lambda x: lax.ppermute(x, self.axis, pairs), blocks)

    def scores(self, query: jax.Array, key: jax.Array, distance: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the scores [B, N, q, k] of a block that has travelled a distance, and which of them count."""
        here, places = lax.axis_index(self.axis), jnp.arange(self.rows)
        start = (here - distance) % self.devices * self.rows
        scores = jnp.einsum("bqnd,bknd->bnqk", query, key).astype(F32) / math.sqrt(query.shape[-1])
        return scores, (start + places)[None, :] <= (here * self.rows + places)[:, None]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def ring_attention(query: jax.Array, key: jax.Array, value: jax.Array, ring: Blocks) -> jax.Array:
    """Computes causal attention of a device's queries [B, s, N, D]; keys and values are its blocks of the sequence."""
    return _forward(query, key, value, ring)[0]


def _forward(query: jax.Array, key: jax.Array, value: jax.Array, ring: Blocks) -> tuple[jax.Array, Tree]:
    """Returns the result, and with it what the gradient needs: nothing that grows with the devices."""

    def attend(state: Tree, distance: jax.Array, key: jax.Array, value: jax.Array) -> Tree:
        mixed, total, largest = state
        scores, seen = ring.scores(query, key, distance)
        scores = jnp.where(seen, scores, -1e9)
        most = jnp.maximum(largest, scores.max(-1, keepdims=True))
        weights, scale = jnp.where(seen, jnp.exp(scores - most), 0), jnp.exp(largest - most)
        mixed = mixed * scale + jnp.einsum("bnqk,bknd->bnqd", weights.astype(value.dtype), value).astype(F32)
        return mixed, total * scale + weights.sum(-1, keepdims=True), most

    def step(carry: Tree, distance: jax.Array) -> tuple[Tree, None]:
        state, blocks = carry
        blocks = ring.onward(blocks)
        return (attend(state, distance, *blocks), blocks), None

    rows = jnp.swapaxes(query, 1, 2).astype(F32)
    zeros = jnp.zeros_like(rows[..., :1])
    state = attend((jnp.zeros_like(rows), zeros, zeros - 1e9), jnp.int32(0), key, value)
    ((mixed, total, most), _), _ = lax.scan(step, (state, (key, value)), jnp.arange(1, ring.devices))
    result = jnp.swapaxes(mixed / total, 1, 2).astype(query.dtype)
    return result, (query, key, value, result, most + jnp.log(total))


def _backward(ring: Blocks, kept: Tree, gradient: jax.Array) -> Tree:
    """Returns the gradients of queries, keys and values. Blocks go around once more, and their gradients with them."""
    query, key, value, result, normalizer = kept
    size, gradient = math.sqrt(query.shape[-1]), gradient.astype(query.dtype)
    shared = jnp.einsum("bqnd,bqnd->bnq", gradient.astype(F32), result.astype(F32))[..., None]

    def attend(distance: jax.Array, of_query: jax.Array, blocks: Tree, of_blocks: Tree) -> Tree:
        (key, value), (of_key, of_value) = blocks, of_blocks
        scores, seen = ring.scores(query, key, distance)
        weights = jnp.where(seen, jnp.exp(scores - normalizer), 0)
        of_weights = jnp.einsum("bqnd,bknd->bnqk", gradient, value).astype(F32)
        of_scores = (weights * (of_weights - shared) / size).astype(query.dtype)
        of_value += jnp.einsum("bnqk,bqnd->bknd", weights.astype(query.dtype), gradient).astype(F32)
        of_key += jnp.einsum("bnqk,bqnd->bknd", of_scores, query).astype(F32)
        of_query += jnp.einsum("bnqk,bknd->bqnd", of_scores, key).astype(F32)
        return of_query, blocks, (of_key, of_value)

    def step(carry: Tree, distance: jax.Array) -> tuple[Tree, None]:
        of_query, blocks, of_blocks = carry
        return attend(distance, of_query, ring.onward(blocks), ring.onward(of_blocks)), None

    zeros = jnp.zeros_like(query, F32)
    start = attend(jnp.int32(0), zeros, (key, value), (zeros, zeros))
    (of_query, _, of_blocks), _ = lax.scan(step, start, jnp.arange(1, ring.devices))
    return tuple(x.astype(query.dtype) for x in (of_query, *ring.onward(of_blocks)))


ring_attention.defvjp(_forward, _backward)


@dataclass(frozen=True)
class Ring:
    """Sizes of one layer of attention."""

    batch: int = 2
    sequence: int = 32
    width: int = 16
    heads: int = 2
    head: int = 8
    dtype: str = "bfloat16"

    @property
    def sizes(self) -> Sizes:
        return {"B": self.batch, "S": self.sequence, "M": self.width, "N": self.heads, "D": self.head}


def ring(model: Ring, axes: Mapping[str, int], table: Table = RING) -> Program:
    """Returns the step that trains a layer of attention on long sequences: mean square error of [B, S, M]."""
    layout = Layout(axes, table)
    blocks = PartitionSpec("data", "ring")
    view = Blocks("ring", axes["ring"], model.sequence // axes["ring"])

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return ring_attention(query, key, value, view)

    around: Any = jax.shard_map(attend, mesh=layout.mesh, in_specs=(blocks,) * 3, out_specs=blocks)

    def loss(w: Tree, x: jax.Array, targets: jax.Array) -> jax.Array:
        parts = [product("BSM,MND->BSND", x.astype(model.dtype), w[name]) for name in ("query", "key", "value")]
        y = product("BSND,NDM->BSM", around(*parts), w["output"])
        return jnp.mean((y.astype(F32) - targets) ** 2)

    weights = {"query": "MND", "key": "MND", "value": "MND", "output": "NDM"}
    x = layout.argument("BSM", model.sizes)
    return training(layout, model.sizes, weights, loss, (x, x))
