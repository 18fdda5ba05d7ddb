"""Defines a decoder-only transformer and its training step, annotated for data and tensor parallelism.

Pre-norm blocks with RMSNorm, rotary positions, causal softmax attention and a SwiGLU feed-forward part; cross entropy
on the next token; Adam. Written in plain JAX so that what XLA gets is what users write: einsum and matmul, `jax.nn`,
`jax.grad`, and `lax.scan` over stacked layers if asked. The mesh axis `data` divides the batch; `model` divides heads,
hidden units and vocabulary as Megatron does: the first matrix of a pair by columns, the second by rows.

Letters in comments: B batch, T sequence, D width, H heads, E width of a head, F hidden, V vocabulary.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

Tree = Any  # nested dicts and lists of arrays, shapes or partition specs
Constrain = Callable[[jax.Array, P], jax.Array]


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of one batch. `scan` stacks the layers' parameters and loops over them."""

    batch: int = 8
    sequence: int = 16
    width: int = 32
    heads: int = 4
    hidden: int = 64
    vocabulary: int = 64
    layers: int = 2
    scan: bool = False


LAYER_SPECS = {
    "attention_norm": P(None),
    "query": P(None, "model", None),
    "key": P(None, "model", None),
    "value": P(None, "model", None),
    "output": P("model", None, None),
    "mlp_norm": P(None),
    "gate": P(None, "model"),
    "up": P(None, "model"),
    "down": P("model", None),
}
RESIDUAL = P("data", None, None)  # [B, T, D], whole on every device of a model group
HEADS = P("data", None, "model", None)  # [B, T, H, E]
HIDDEN = P("data", None, "model")  # [B, T, F] and [B, T, V]


def parameter_shapes(config: Config) -> Tree:
    """Returns the dimensions of every parameter; with `scan`, layer parameters have a leading layer dimension."""
    d, h, f = config.width, config.heads, config.hidden
    head = (d, h, d // h)
    layer = {
        "attention_norm": (d,),
        "query": head,
        "key": head,
        "value": head,
        "output": (h, d // h, d),
        "mlp_norm": (d,),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }
    if config.scan:
        layers: Tree = {name: (config.layers, *dims) for name, dims in layer.items()}
    else:
        layers = [layer] * config.layers
    vocabulary = config.vocabulary
    return {"embedding": (vocabulary, d), "layers": layers, "final_norm": (d,), "unembedding": (d, vocabulary)}


def parameter_specs(config: Config) -> Tree:
    """Returns the partition spec of every parameter."""
    if config.scan:
        layers: Tree = {name: P(None, *spec) for name, spec in LAYER_SPECS.items()}
    else:
        layers = [LAYER_SPECS] * config.layers
    return {"embedding": P("model", None), "layers": layers, "final_norm": P(None), "unembedding": P(None, "model")}


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x: jax.Array) -> jax.Array:
    """Rotates [B, T, H, E] by its positions: pairs (i, i + E/2) turn by an angle that grows with the position."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * frequency
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


def attention(layer: Tree, x: jax.Array, constrain: Constrain) -> jax.Array:
    """Computes causal multi-head attention of [B, T, D]."""
    query, key, value = (
        constrain(jnp.einsum("btd,dhe->bthe", x, layer[name]), HEADS) for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bthe,bshe->bhts", rotate(query), rotate(key)) / query.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], dtype=bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = constrain(jnp.einsum("bhts,bshe->bthe", weights, value), HEADS)
    return jnp.einsum("bthe,hed->btd", mixed, layer["output"])


def feed_forward(layer: Tree, x: jax.Array, constrain: Constrain) -> jax.Array:
    """Computes SwiGLU of [B, T, D]."""
    hidden = constrain(jax.nn.silu(x @ layer["gate"]) * (x @ layer["up"]), HIDDEN)
    return hidden @ layer["down"]


def block(layer: Tree, x: jax.Array, constrain: Constrain) -> jax.Array:
    """Computes one layer: [B, T, D] to [B, T, D]."""
    x = x + constrain(attention(layer, rms_norm(x, layer["attention_norm"]), constrain), RESIDUAL)
    return x + constrain(feed_forward(layer, rms_norm(x, layer["mlp_norm"]), constrain), RESIDUAL)


def logits(config: Config, parameters: Tree, tokens: jax.Array, constrain: Constrain) -> jax.Array:
    """Computes logits [B, T, V] of token numbers [B, T]."""
    x = constrain(parameters["embedding"][tokens], RESIDUAL)
    if config.scan:
        x, _ = lax.scan(lambda x, layer: (block(layer, x, constrain), None), x, parameters["layers"])
    else:
        for layer in parameters["layers"]:
            x = block(layer, x, constrain)
    return constrain(rms_norm(x, parameters["final_norm"]) @ parameters["unembedding"], HIDDEN)


def make_step(config: Config, constrain: Constrain) -> Callable[..., tuple[Tree, jax.Array]]:
    """Returns the training step `(state, tokens, targets) -> (state, loss)`; the state is that of `state_shapes`."""

    def loss_of(parameters: Tree, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(logits(config, parameters, tokens, constrain), axis=-1)
        return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], axis=-1))

    def train_step(state: Tree, tokens: jax.Array, targets: jax.Array) -> tuple[Tree, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(state["parameters"], tokens, targets)
        return adam(state, gradient), loss

    return train_step


def adam(state: Tree, gradient: Tree, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.99) -> Tree:
    """Takes one step of Adam with bias correction. `state` holds step, parameters, first and second moments."""
    step = state["step"] + 1
    count = step.astype(jnp.float32)
    correct1, correct2 = 1 / (1 - b1**count), 1 / (1 - b2**count)
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["first"], gradient)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["second"], gradient)

    def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - rate * correct1 * m / (jnp.sqrt(correct2 * v) + 1e-8)

    parameters = jax.tree.map(update, state["parameters"], first, second)
    return {"step": step, "parameters": parameters, "first": first, "second": second}


def state_shapes(config: Config) -> Tree:
    """Returns the shapes of the training state: the parameters, and their moments in Adam."""
    shapes = jax.tree.map(
        lambda dims: jax.ShapeDtypeStruct(dims, jnp.float32),
        parameter_shapes(config),
        is_leaf=lambda node: isinstance(node, tuple),
    )
    step = jax.ShapeDtypeStruct((), jnp.int32)
    return {"step": step, "parameters": shapes, "first": shapes, "second": shapes}


def state_specs(config: Config) -> Tree:
    """Returns the partition specs of the training state: moments lie where their parameters lie."""
    specs = parameter_specs(config)
    return {"step": P(), "parameters": specs, "first": specs, "second": specs}
