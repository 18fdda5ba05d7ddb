"""The layers that the models share, in plain `jax.numpy`: products by letters, norms, positions, attention, loss.

Weights are fp32; each is converted to the type of the activations where it is used. Statistics, softmax and loss are
computed in fp32.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .layout import Tree

Place = Callable[[jax.Array, str], jax.Array]
Function = Callable[[jax.Array], jax.Array]
F32: Any = jnp.float32


def product(letters: str, x: jax.Array, w: jax.Array) -> jax.Array:
    """Computes einsum of activations and a weight, in the type of the activations."""
    return jnp.einsum(letters, x, w.astype(x.dtype))


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Divides each vector of width M by its root mean square, and scales it (Zhang and Sennrich, 2019)."""
    y = x.astype(F32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


def rotate(x: jax.Array) -> jax.Array:
    """Rotates pairs (i, i + D/2) of [B, S, .., D] by angles that grow with the position (Su et al., 2021)."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-jnp.arange(half, dtype=F32) / half)
    angle = jnp.arange(x.shape[1], dtype=F32)[:, None] * frequency
    angle = angle.reshape(x.shape[1], *[1] * (x.ndim - 3), half)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    left, right = jnp.split(x.astype(F32), 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1).astype(x.dtype)


def distances(length: int, buckets: int = 32, farthest: int = 128) -> jax.Array:
    """Returns the bucket of the distance between each query and each key [S, S]: one per distance for half of the
    buckets, and logarithmically more distances in each of the others (Raffel et al., 2020).
    """
    place = jnp.arange(length)
    distance = jnp.maximum(place[:, None] - place[None, :], 0)
    exact = buckets // 2
    far = jnp.log(jnp.maximum(distance, 1).astype(F32) / exact) / math.log(farthest / exact) * (buckets - exact)
    return jnp.where(distance < exact, distance, jnp.minimum(exact + far.astype(jnp.int32), buckets - 1))


def attention(w: Tree, x: jax.Array, place: Place, rotary: bool = False, causal: bool = True) -> jax.Array:
    """Computes attention of [B, S, M]; Q queries share a head of keys. With `distance` among the weights, a learned
    bias per distance and head is added to the scores.
    """
    query = place(product("BSM,MNQD->BSNQD", x, w["query"]), "BSNQD")
    key, value = (place(product("BSM,MND->BSND", x, w[name]), "BSND") for name in ("key", "value"))
    if rotary:
        query, key = rotate(query), rotate(key)
    scores = jnp.einsum("BSNQD,BTND->BNQST", query, key).astype(F32) / math.sqrt(query.shape[-1])
    if "distance" in w:
        scores += jnp.einsum("STNQ->NQST", w["distance"][distances(x.shape[1], w["distance"].shape[0])])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], dtype=bool)), scores, -1e9)
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    mixed = place(jnp.einsum("BNQST,BTND->BSNQD", weights, value), "BSNQD")
    return product("BSNQD,NQDM->BSM", mixed, w["output"])


def feed_forward(w: Tree, x: jax.Array, place: Place, between: Function = jax.nn.gelu) -> jax.Array:
    """Computes two products with a function between them, or SwiGLU if there is a gate (Shazeer, 2020)."""
    hidden = product("BSM,MH->BSH", x, w["up"])
    if "gate" in w:
        hidden = hidden * jax.nn.silu(product("BSM,MH->BSH", x, w["gate"]))
    else:
        hidden = between(hidden)
    return product("BSH,HM->BSM", place(hidden, "BSH"), w["down"])


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the mean of -log p(target) of logits [B, S, V]."""
    log_p = jax.nn.log_softmax(logits.astype(F32), axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], axis=-1))
