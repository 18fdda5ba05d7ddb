"""The dense decoder transformer: GSPMD's and Megatron's shardings, sequence parallelism, FSDP; Lingvo's and Llama's
configurations.

A model is `Transformer` and a `Layout`; the tables below are the ways to divide it. Weights are fp32, AdamW's moments
lie where their weights lie, activations are bf16.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax

from .layers import Function, Place, attention, cross_entropy, feed_forward, product, rms_norm
from .layout import Layout, Sizes, Spec, Table, Tree, stacked
from .training import Program, evaluation, training

ACTIVATIONS: dict[str, Spec] = {"BS": ("data",), "BSM": ("data", None, None)}
"""Divided by batch. All tables annotate the tokens and the residual stream; what lies between follows."""

MEGATRON: Table = ACTIVATIONS | {
    "VM": ("model", None), "MNQD": (None, "model", None, None), "MND": (None, "model", None),
    "NQDM": ("model", None, None, None), "MH": (None, "model"), "HM": ("model", None), "M": (), "PM": (),
    "RNQ": (None, "model"),
}  # fmt: skip
"""Columns of the first weight of a pair, rows of the second (Shoeybi et al., 2019)."""

SEQUENCE: Table = {**MEGATRON, "BSM": ("data", "model", None)}
"""Megatron's, and the sequence divided between the pairs (Korthikanti et al., 2022)."""

FSDP: Table = ACTIVATIONS | {
    "VM": ("data", None), "MNQD": ("data",), "MND": ("data",), "NQDM": (None, None, None, "data"), "MH": ("data",),
    "HM": (None, "data"), "M": ("data",), "PM": (None, "data"), "RNQ": (None, "data"),
}  # fmt: skip
"""Weights divided where the batch is (ZeRO-3, Rajbhandari et al., 2020)."""

FSDP_TENSOR: Table = ACTIVATIONS | {
    "VM": ("model", "data"), "MNQD": ("data", "model", None, None), "MND": ("data", "model", None),
    "NQDM": ("model", None, None, "data"), "MH": ("data", "model"), "HM": ("model", "data"),
    "M": ("data",), "PM": ("model", "data"), "RNQ": ("data", "model"),
}  # fmt: skip
"""Weights on both axes; Megatron's on one, FSDP's on the other."""

FSDP_SEQUENCE: Table = {**FSDP_TENSOR, "BSM": ("data", "model", None)}
"""The same, and the sequence divided between the products of a layer."""

FINALIZED: Table = FSDP_TENSOR | {
    "BSM": ("data", None, "model"), "BSV": ("data", None, "model"), "VM": (None, "model"), "PM": (None, "model"),
    "M": ("model",),
}  # fmt: skip
"""GSPMD's 2-D finalized: the same weights, and activations divided by batch and width."""


@dataclass(frozen=True)
class Transformer:
    """Sizes and kind of a decoder. `positions` is `distance` (a bias per distance), `learned` or `rotary`; `gated` has
    SwiGLU in place of the function `between` two products; `tied` reads logits off the embedding. `scan` loops over
    stacked layers; `remat` computes each layer again in the backward pass.
    """

    layers: int = 2
    width: int = 32
    hidden: int = 64
    heads: int = 8
    head: int = 4
    kv_heads: int | None = None
    vocabulary: int = 64
    batch: int = 8
    sequence: int = 16
    positions: str = "distance"
    gated: bool = True
    between: Function = jax.nn.gelu
    tied: bool = True
    scan: bool = True
    remat: bool = False
    dtype: str = "bfloat16"

    @property
    def sizes(self) -> Sizes:
        keys = self.kv_heads or self.heads
        return {"B": self.batch, "S": self.sequence, "M": self.width, "H": self.hidden, "N": keys,
                "Q": self.heads // keys, "D": self.head, "V": self.vocabulary, "P": 2048, "R": 32,
                "L": self.layers}  # fmt: skip

    def layer(self) -> Tree:
        """Returns the weights of a layer, as letters."""
        part = {"query": "MNQD", "key": "MND", "value": "MND", "output": "NQDM"}
        part |= {"distance": "RNQ"} if self.positions == "distance" else {}
        dense = {"up": "MH", "down": "HM"} | ({"gate": "MH"} if self.gated else {})
        return {"attention_norm": "M", "attention": part, "dense_norm": "M", "dense": dense}

    def weights(self) -> Tree:
        """Returns all weights, as letters."""
        layers = stacked("L", self.layer()) if self.scan else [self.layer()] * self.layers
        tree: Tree = {"embedding": "VM", "layers": layers, "final_norm": "M"}
        tree |= {"positions": "PM"} if self.positions == "learned" else {}
        return tree if self.tied else tree | {"unembedding": "VM"}

    def block(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes one layer: [B, S, M] to [B, S, M]."""
        y = attention(w["attention"], rms_norm(x, w["attention_norm"]), place, self.positions == "rotary")
        x = x + place(y, "BSM")
        return x + place(feed_forward(w["dense"], rms_norm(x, w["dense_norm"]), place, self.between), "BSM")

    def converted(self, w: Tree) -> Tree:
        """Converts the embedding once, where two read it, so that its gradients are added before they are reduced."""
        return {**w, "embedding": w["embedding"].astype(self.dtype)}

    def embed(self, w: Tree, tokens: jax.Array, place: Place) -> jax.Array:
        """Looks up tokens [B, S], and adds learned positions if there are any."""
        x = w["embedding"][tokens]
        if self.positions == "learned":
            x = x + w["positions"][: self.sequence].astype(x.dtype)
        return place(x, "BSM")

    def logits(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes logits [B, S, V] of the last layer's result."""
        x = rms_norm(x, w["final_norm"])
        return place(product("BSM,VM->BSV", x, w["embedding" if self.tied else "unembedding"]), "BSV")

    def repeat(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes layer after layer: in a loop over stacked weights, or written out."""

        def block(x: jax.Array, w: Tree) -> jax.Array:
            return self.block(w, x, place)

        block = jax.checkpoint(block) if self.remat else block
        if self.scan:
            return jax.lax.scan(lambda x, w: (block(x, w), None), x, w)[0]
        for layer in w:
            x = block(x, layer)
        return x

    def loss(self, w: Tree, tokens: jax.Array, targets: jax.Array, place: Place) -> jax.Array:
        """Returns the mean cross entropy of the targets [B, S]."""
        w = self.converted(w)
        x = self.repeat(w["layers"], self.embed(w, tokens, place), place)
        return cross_entropy(self.logits(w, x, place), targets)


def dense(model: Transformer, axes: Mapping[str, int], table: Table, train: bool = True) -> Program:
    """Returns the training step of a transformer on a mesh, or its loss alone."""
    layout = Layout(axes, table).stacked("L")
    tokens = layout.argument("BS", model.sizes, "int32")

    def loss(w: Tree, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        return model.loss(w, tokens, targets, layout.place)

    make = training if train else evaluation
    return replace(make(layout, model.sizes, model.weights(), loss, (tokens, tokens)), recomputed=model.remat)


# Lingvo's released configurations (lingvo/tasks/lm/params/synthetic_packed_input.py).
LM_128B = Transformer(layers=64, width=8192, hidden=65536, heads=128, head=128, vocabulary=32000, sequence=1024,
                      batch=16, remat=True)  # fmt: skip
LM_1T = replace(LM_128B, layers=128, width=16384, hidden=131072, heads=256, sequence=512)
LM_175B = Transformer(layers=96, width=12288, hidden=49152, heads=96, head=128, vocabulary=32000, sequence=2048,
                      batch=1024, positions="learned", gated=False, remat=True)  # fmt: skip

# The largest model of Megatron-LM (Shoeybi et al., 2019), and the one of Korthikanti et al. (2022) without a pipeline.
GPT_8B = replace(LM_175B, layers=72, width=3072, hidden=12288, heads=24, vocabulary=51200, sequence=1024, batch=512)
GPT_22B = replace(GPT_8B, layers=48, width=6144, hidden=24576, heads=64, head=96, sequence=2048, batch=32)

# Llama 3.1 (Grattafiori et al., 2024).
LLAMA_8B = Transformer(layers=32, width=4096, hidden=14336, heads=32, head=128, kv_heads=8, vocabulary=128256,
                       sequence=8192, batch=128, positions="rotary", tied=False, remat=True)  # fmt: skip
LLAMA_70B = replace(LLAMA_8B, layers=80, width=8192, hidden=28672, heads=64, batch=256)
LLAMA_405B = replace(LLAMA_8B, layers=126, width=16384, hidden=53248, heads=128, batch=64)
