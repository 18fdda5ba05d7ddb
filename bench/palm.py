"""PaLM 540B as it was trained and served on TPU v4 (Chowdhery et al., 2022; Pope et al., Efficiently Scaling
Transformer Inference, 2022): layers whose two halves read the same norm, and one head of keys and values.

Training: weights on both axes, the residual stream by batch and width, as in GSPMD's finalized sharding. Serving: the
weights stay where they are, and products with them are divided by width and hidden width; attention is divided by
sequences in decode steps, by heads in a prefill of one sequence. A prefill of many sequences gathers weights.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import dense
from models.decode import attend
from models.layers import Place, attention, feed_forward, product, rms_norm
from models.layout import Layout, Table, Tree
from models.training import Program

TRAINING: Table = {
    **dense.FINALIZED, "MNQD": ("data", None, "model", None), "MND": ("data", None, None),
    "NQDM": (None, "model", None, "data"),
}  # fmt: skip
STATIONARY: Table = {
    "VM": ("hidden", "width"), "MNQD": ("width", None, "hidden", None), "MND": ("width", None, None), "M": (),
    "NQDM": (None, "hidden", None, "width"), "MH": ("width", "hidden"), "HM": ("hidden", "width"),
    "BSM": (None, None, ("hidden", "width")),
}  # fmt: skip
DECODING: Table = {**STATIONARY, "B": (), "BSNQD": (("width", "hidden"),), "BSND": (("width", "hidden"),)}
GATHERED: Table = {**STATIONARY, "BS": (("width", "hidden"),), "BSM": (("width", "hidden"), None, None)}
SERVED = {"width": 4, "hidden": 16}


@dataclass(frozen=True)
class Parallel(dense.Transformer):
    """A decoder whose layers compute attention and the feed-forward half from the same norm."""

    def layer(self) -> Tree:
        """Returns the weights of a layer, as letters."""
        return {name: part for name, part in super().layer().items() if name != "dense_norm"}

    def block(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes one layer: [B, S, M] to [B, S, M]."""
        y = rms_norm(x, w["attention_norm"])
        mixed = attention(w["attention"], y, place, self.positions == "rotary")
        return x + place(mixed + feed_forward(w["dense"], y, place), "BSM")


# A vocabulary of 258,048 in place of 256,000, which 3,072 devices do not divide.
TRAINED = Parallel(layers=118, width=18432, hidden=73728, heads=48, head=256, kv_heads=1, vocabulary=258048,
                   batch=1024, sequence=2048, positions="rotary", remat=True)  # fmt: skip
# Heads are padded to 64 (Pope et al., section 4).
PADDED = replace(TRAINED, heads=64, vocabulary=256000, remat=False)


def trained() -> Program:
    """Returns the training step of one pod of 3,072 chips."""
    return dense.dense(TRAINED, {"data": 256, "model": 12}, TRAINING)


def prefilled(batch: int, dtype: str, table: Table) -> Program:
    """Returns `(weights, tokens) -> logits` of the last token of each sequence, with weights of a type."""
    model = replace(PADDED, batch=batch)
    layout = Layout(SERVED, table).stacked("L")

    def prefill(w: Tree, tokens: jax.Array) -> jax.Array:
        rows = {**w, "embedding": w["embedding"].astype(model.dtype)}
        x = model.repeat(w["layers"], model.embed(rows, tokens, layout.place), layout.place)
        return model.logits(w, x[:, -1:], layout.place)

    weights = model.weights()
    arguments = layout.arguments(weights, model.sizes, dtype), layout.argument("BS", model.sizes, "int32")
    return Program(layout, prefill, arguments, weights, model.sizes)


def decoded(batch: int, dtype: str) -> Program:
    """Returns `(weights, cache, words, position) -> (cache, words)`, one word for each sequence."""
    model = replace(PADDED, batch=batch, positions="none")
    layout = Layout(SERVED, DECODING).stacked("L")

    def decode(w: Tree, cache: Tree, words: jax.Array, position: jax.Array) -> tuple[Tree, jax.Array]:
        x = layout.place(w["embedding"].astype(model.dtype)[words][:, None], "BSM")

        def layer(x: jax.Array, given: Tree) -> tuple[jax.Array, Tree]:
            w, cache = given
            y = rms_norm(x, w["attention_norm"])
            mixed, cache = attend(w["attention"], y, cache, position, layout)
            return layout.place(x + mixed + feed_forward(w["dense"], y, layout.place), "BSM"), cache

        x, cache = lax.scan(layer, x, (w["layers"], cache))
        logits = product("BSM,VM->BSV", rms_norm(x, w["final_norm"]), w["embedding"])
        return cache, jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32)

    weights = model.weights()
    cache = {name: layout.argument("LBSND", model.sizes, model.dtype) for name in ("key", "value")}
    words, position = layout.argument("B", model.sizes, "int32"), jax.ShapeDtypeStruct((), "int32")
    arguments = layout.arguments(weights, model.sizes, dtype), cache, words, position
    results = jax.tree.map(lambda shape: shape.sharding, cache), None
    return Program(layout, decode, arguments, weights, model.sizes, results, donated=(1,))
