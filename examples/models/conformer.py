"""The Conformer: attention and depthwise convolution over frames, between two halves of a feed-forward layer.

Frames are divided along with the batch, as sequence parallelism does it, so convolutions exchange halos of frames, and
attention gathers what it needs (Gulati et al., 2020). Letters beside those of `layout`: K taps, O 2M.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .dense import SEQUENCE
from .layers import F32, Place, attention, feed_forward, product, rms_norm
from .layout import Layout, Sizes, Table, Tree, stacked
from .training import Program, training

FRAMES: Table = {
    **SEQUENCE, "BSNQD": ("data", None, "model"), "BSND": ("data", None, "model"), "MO": (), "KM": (), "MM": (),
}  # fmt: skip
"""Megatron's weights, frames divided; convolutions have all their weights on every device."""


@dataclass(frozen=True)
class Conformer:
    """Sizes of the encoder. `taps` is the width of the depthwise convolution."""

    layers: int = 2
    width: int = 64
    hidden: int = 256
    heads: int = 8
    head: int = 16
    taps: int = 5
    batch: int = 8
    sequence: int = 16
    dtype: str = "bfloat16"
    remat: bool = False

    @property
    def sizes(self) -> Sizes:
        return {"B": self.batch, "S": self.sequence, "M": self.width, "H": self.hidden, "N": self.heads, "Q": 1,
                "D": self.head, "K": self.taps, "O": 2 * self.width, "L": self.layers}  # fmt: skip

    def weights(self) -> Tree:
        """Returns all weights, as letters."""
        half = {"norm": "M", "up": "MH", "down": "HM"}
        mixing = {"norm": "M", "query": "MNQD", "key": "MND", "value": "MND", "output": "NQDM"}
        filters = {"norm": "M", "gate": "MO", "depthwise": "KM", "scale": "M", "output": "MM"}
        return stacked("L", {"first": half, "attention": mixing, "filter": filters, "second": half, "norm": "M"})

    def filtered(self, w: Tree, x: jax.Array) -> jax.Array:
        """Computes the convolution module: gated linear unit, depthwise convolution, norm, swish, product."""
        left, right = jnp.split(product("BSM,MO->BSO", x, w["gate"]), 2, axis=-1)
        x = left * jax.nn.sigmoid(right)
        kernel = w["depthwise"].astype(x.dtype)[:, None, :]
        x = jax.lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"),
                                         feature_group_count=self.width)  # fmt: skip
        return product("BSM,MN->BSN", jax.nn.silu(rms_norm(x, w["scale"])), w["output"])

    def block(self, x: jax.Array, w: Tree, place: Place) -> jax.Array:
        """Computes one layer: [B, S, M] to [B, S, M]."""
        x = x + 0.5 * place(feed_forward(w["first"], rms_norm(x, w["first"]["norm"]), place), "BSM")
        x = x + place(attention(w["attention"], rms_norm(x, w["attention"]["norm"]), place, causal=False), "BSM")
        x = x + place(self.filtered(w["filter"], rms_norm(x, w["filter"]["norm"])), "BSM")
        x = x + 0.5 * place(feed_forward(w["second"], rms_norm(x, w["second"]["norm"]), place), "BSM")
        return rms_norm(x, w["norm"])


def conformer(model: Conformer, axes: Mapping[str, int], table: Table = FRAMES) -> Program:
    """Returns the step that trains an encoder to tell masked frames: mean square error of [B, S, M]."""
    layout = Layout(axes, table).stacked("L")
    frames = layout.argument("BSM", model.sizes)

    def loss(w: Tree, frames: jax.Array, targets: jax.Array) -> jax.Array:
        def block(x: jax.Array, w: Tree) -> jax.Array:
            return model.block(x, w, layout.place)

        block = jax.checkpoint(block) if model.remat else block
        x, _ = jax.lax.scan(lambda x, w: (block(x, w), None), frames.astype(model.dtype), w)
        return jnp.mean((x.astype(F32) - targets) ** 2)

    return training(layout, model.sizes, model.weights(), loss, (frames, frames))
