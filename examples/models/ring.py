"""Ring attention: the sequence is divided, and blocks of keys and values travel around the ring (Liu et al., 2023).

Written per device with `shard_map`. Each device keeps its queries; n - 1 times it passes keys and values on, so sends
are collective-permutes of one block and nothing is gathered. Softmax is computed block by block, from running maxima
and sums. The gradient sends the same blocks and their gradients backwards.
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


def ring_attention(query: jax.Array, key: jax.Array, value: jax.Array, axis: str, devices: int) -> jax.Array:
    """Computes causal attention of a device's queries [B, s, N, D]; keys and values are its blocks of the sequence."""
    here, block = lax.axis_index(axis), query.shape[1]
    places = jnp.arange(block)
    onward = [(n, (n + 1) % devices) for n in range(devices)]

    def attend(state: Tree, distance: jax.Array, key: jax.Array, value: jax.Array) -> Tree:
        mixed, total, largest = state
        scores = jnp.einsum("bqnd,bknd->bnqk", query, key).astype(F32) / math.sqrt(query.shape[-1])
        start = (here - distance) % devices * block
        seen = (start + places)[None, :] <= (here * block + places)[:, None]
        scores = jnp.where(seen, scores, -1e9)
        most = jnp.maximum(largest, lax.stop_gradient(scores.max(-1, keepdims=True)))
        weights, scale = jnp.where(seen, jnp.exp(scores - most), 0), jnp.exp(largest - most)
        mixed = mixed * scale + jnp.einsum("bnqk,bknd->bnqd", weights.astype(value.dtype), value).astype(F32)
        return mixed, total * scale + weights.sum(-1, keepdims=True), most

    def step(carry: Tree, distance: jax.Array) -> tuple[Tree, None]:
        state, key, value = carry
        key, value = (lax.ppermute(x, axis, onward) for x in (key, value))
        return (attend(state, distance, key, value), key, value), None

    rows = jnp.swapaxes(query, 1, 2).astype(F32)
    zeros = jnp.zeros_like(rows[..., :1])
    state = attend((jnp.zeros_like(rows), zeros, zeros - 1e9), jnp.int32(0), key, value)
    ((mixed, total, _), _, _), _ = lax.scan(step, (state, key, value), jnp.arange(1, devices))
    return jnp.swapaxes(mixed / total, 1, 2).astype(query.dtype)


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
    attend = partial(ring_attention, axis="ring", devices=axes["ring"])
    around: Any = jax.shard_map(attend, mesh=layout.mesh, in_specs=(blocks,) * 3, out_specs=blocks)

    def loss(w: Tree, x: jax.Array, targets: jax.Array) -> jax.Array:
        parts = [product("BSM,MND->BSND", x.astype(model.dtype), w[name]) for name in ("query", "key", "value")]
        y = product("BSND,NDM->BSM", around(*parts), w["output"])
        return jnp.mean((y.astype(F32) - targets) ** 2)

    weights = {"query": "MND", "key": "MND", "value": "MND", "output": "NDM"}
    x = layout.argument("BSM", model.sizes)
    return training(layout, model.sizes, weights, loss, (x, x))
