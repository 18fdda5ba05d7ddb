"""GShard's mixture of experts: every other feed-forward layer has E experts, and each token goes to two of them.

Tokens are routed in G groups. An expert takes at most C tokens of a group; others pass by on the residual connection.
Dispatch and combine are products with masks, `GSEC,GSM->EGCM` and `GSEC,GECM->GSM` (Lepikhin et al., 2020, algorithms 1
and 2). Groups and experts lie on the same devices, so each product ends or begins with an all-to-all.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from .dense import FSDP, Transformer
from .layers import F32, Place, attention, cross_entropy, product, rms_norm
from .layout import Layout, Sizes, Table, Tree, stacked
from .training import Program, training

GSHARD: Table = {
    "BS": ("data",), "BSM": ("data",), "GSM": ("data",), "GSEC": ("data",), "EGCM": ("data",), "GECM": ("data",),
    "EMH": ("data",), "EHM": ("data",), "ME": (), "VM": (), "MNQD": (), "MND": (), "NQDM": (), "MH": (), "HM": (),
    "M": (), "RNQ": (),
}  # fmt: skip
"""Tokens, groups and experts on all devices; all other weights are whole on each."""

SHARDED: Table = {
    **GSHARD, **{name: FSDP[name] for name in ("MNQD", "MND", "NQDM", "MH", "HM", "M", "RNQ")}, "VM": (None, "data"),
}
"""The same, and all other weights divided as the tokens are."""


def route(gates: jax.Array, capacity: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the weights of tokens in the places of experts [G, S, E, C], and the auxiliary loss (algorithm 1).

    The second expert of a token takes it at random, with twice its gate as probability. Both gates of a token are
    divided by their sum. The loss is the mean over experts of their share of first choices times their mean gate.
    """
    experts = gates.shape[-1]
    first = jax.nn.one_hot(jnp.argmax(gates, axis=-1), experts, dtype=F32)
    others = gates * (1 - first)
    second = jax.nn.one_hot(jnp.argmax(others, axis=-1), experts, dtype=F32)
    loss = jnp.mean(jnp.mean(first, axis=1) * jnp.mean(gates, axis=1))
    weight1, weight2 = jnp.sum(gates * first, axis=-1), jnp.sum(gates * second, axis=-1)
    total = weight1 + weight2 + 1e-9
    weight1, weight2 = weight1 / total, weight2 / total
    taken = 2 * weight2 > jax.random.uniform(key, weight2.shape)
    second = second * taken[..., None]
    before = jnp.sum(first, axis=1, keepdims=True)
    place1, place2 = jnp.cumsum(first, axis=1) - first, jnp.cumsum(second, axis=1) - second + before
    combine = jnp.zeros((*gates.shape, capacity), F32)
    for chosen, place, weight in ((first, place1, weight1), (second, place2, weight2)):
        slot = jnp.sum(place * chosen, axis=-1).astype(jnp.int32)  # one_hot is zero beyond the capacity
        row = (chosen * weight[..., None])[..., None]
        combine = combine + row * jax.nn.one_hot(slot, capacity, dtype=F32)[:, :, None, :]
    return combine, loss


@dataclass(frozen=True)
class Experts:
    """A transformer whose odd feed-forward layers have experts. `capacity` is that of an expert for one group."""

    model: Transformer
    experts: int
    groups: int
    capacity: int
    auxiliary: float = 0.01

    @property
    def sizes(self) -> Sizes:
        return {**self.model.sizes, "E": self.experts, "G": self.groups, "C": self.capacity,
                "L": self.model.layers // 2}  # fmt: skip

    def weights(self) -> Tree:
        """Returns all weights, as letters; layers are stacked in pairs."""
        part = self.model.layer()
        mixed = {**part, "dense": {"gate": "ME", "up": "EMH", "down": "EHM"}}
        pairs = stacked("L", {"dense": part, "experts": mixed})
        return {"embedding": "VM", "layers": pairs, "final_norm": "M"}

    def mixture(self, w: Tree, x: jax.Array, place: Place, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes the layer of experts: [B, S, M] to the same, and its auxiliary loss (algorithm 2)."""
        tokens = place(x.reshape(self.groups, -1, x.shape[-1]), "GSM")
        gates = jax.nn.softmax(jnp.einsum("GSM,ME->GSE", tokens.astype(F32), w["gate"]), axis=-1)
        combine, loss = route(gates, self.capacity, key)
        combine = place(combine, "GSEC")
        dispatch = (combine > 0).astype(x.dtype)
        rows = place(jnp.einsum("GSEC,GSM->EGCM", dispatch, tokens), "EGCM")
        hidden = jax.nn.relu(product("EGCM,EMH->EGCH", rows, w["up"]))
        results = place(product("EGCH,EHM->GECM", hidden, w["down"]), "GECM")
        return jnp.einsum("GSEC,GECM->GSM", combine.astype(x.dtype), results).reshape(x.shape), loss

    def pair(self, w: Tree, x: jax.Array, place: Place, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes a dense layer and one of experts."""
        x = self.model.block(w["dense"], x, place)
        w = w["experts"]
        x = x + place(attention(w["attention"], rms_norm(x, w["attention_norm"]), place), "BSM")
        y, loss = self.mixture(w["dense"], rms_norm(x, w["dense_norm"]), place, key)
        return x + place(y, "BSM"), loss

    def loss(self, w: Tree, tokens: jax.Array, targets: jax.Array, key: jax.Array, place: Place) -> jax.Array:
        """Returns the mean cross entropy of the targets [B, S], and the auxiliary losses of all layers."""
        w = self.model.converted(w)
        keys = jax.vmap(lambda n: jax.random.fold_in(key, n))(jnp.arange(self.model.layers // 2))

        def pair(x: jax.Array, given: Tree) -> tuple[jax.Array, jax.Array]:
            return self.pair(given[0], x, place, given[1])

        pair = jax.checkpoint(pair) if self.model.remat else pair
        x, losses = jax.lax.scan(pair, self.model.embed(w, tokens, place), (w["layers"], keys))
        return cross_entropy(self.model.logits(w, x, place), targets) + self.auxiliary * jnp.mean(losses)


def experts(model: Experts, axes: Mapping[str, int], table: Table = GSHARD) -> Program:
    """Returns the training step; its last argument is a key of random numbers, u32[2]."""
    layout = Layout(axes, table).stacked("L")
    tokens = layout.argument("BS", model.sizes, "int32")
    key = jax.ShapeDtypeStruct((2,), "uint32", sharding=layout.sharding())

    def loss(w: Tree, tokens: jax.Array, targets: jax.Array, key: jax.Array) -> jax.Array:
        return model.loss(w, tokens, targets, key, layout.place)

    made = training(layout, model.sizes, model.weights(), loss, (tokens, tokens, key))
    return replace(made, recomputed=model.model.remat)


SMALL = Experts(Transformer(layers=4, width=64, hidden=64, heads=4, head=16, batch=8, sequence=16, vocabulary=64,
                            gated=False), experts=8, groups=8, capacity=4)  # fmt: skip


def gshard(experts: int, layers: int) -> Experts:
    """Returns a model of the paper's table 1, on as many devices as it has experts: 2,048 tokens per device."""
    model = Transformer(layers=layers, width=1024, hidden=8192, heads=16, head=128, vocabulary=32000, batch=2 * experts,
                        sequence=1024, gated=False, between=jax.nn.relu, remat=layers > 24)  # fmt: skip
    return Experts(model, experts, groups=experts, capacity=max(1, 2 * 2048 // experts))


def deepseek(experts: int, layers: int) -> Experts:
    """Returns a model of the sizes of DeepSeekMoE 16B (Dai et al., 2024), two sequences of 4,096 tokens for each of as
    many devices as it has experts. It differs from the paper's: every other layer has experts, of which a token takes
    two, and none is shared.
    """
    model = Transformer(layers=layers, width=2048, hidden=1408, heads=16, head=128, vocabulary=102400,
                        batch=2 * experts, sequence=4096, positions="rotary", gated=False, remat=True)  # fmt: skip
    return Experts(model, experts, groups=experts, capacity=max(1, 4 * 4096 // experts))
