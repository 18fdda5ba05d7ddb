"""Convolutional networks with spatial sharding: a 3-D U-Net and a ResNet, divided by batch, height, width and depth.

Tiles of an image are neighbours: convolutions and pools exchange halos with collective-permutes, forward and backward,
and nothing of the size of an image is gathered. Norms add up statistics over all tiles.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp

from .layers import F32, cross_entropy
from .layout import Axes, Layout, Sizes, Tree
from .training import Program, training

SPACE = "ZYX"


def convolve(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    """Convolves [B, .., C] with [k, .., C, O], same padding."""
    space = SPACE[-(x.ndim - 2) :]
    return jax.lax.conv_general_dilated(
        x, w.astype(x.dtype), (stride,) * len(space), "SAME",
        dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"))  # fmt: skip


def enlarge(x: jax.Array, w: jax.Array) -> jax.Array:
    """Doubles every side of [B, .., C] by a transposed convolution with [2, .., C, O]."""
    space = SPACE[-(x.ndim - 2) :]
    return jax.lax.conv_transpose(
        x, w.astype(x.dtype), (2,) * len(space), "SAME", dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"))


def pool(x: jax.Array, window: int) -> jax.Array:
    """Halves every side by maxima of windows."""
    sides = (1, *[window] * (x.ndim - 2), 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, sides, (1, *[2] * (x.ndim - 2), 1), "SAME")


def batch_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Normalizes each channel over batch and space, in fp32."""
    y, all_but_channels = x.astype(F32), tuple(range(x.ndim - 1))
    mean = jnp.mean(y, all_but_channels)
    variance = jnp.mean(y * y, all_but_channels) - mean * mean
    return ((y - mean) * jax.lax.rsqrt(jnp.maximum(variance, 0) + 1e-3) * scale).astype(x.dtype)


@dataclass(frozen=True)
class Shapes:
    """Weights given by their dimensions: a letter for each, since channels differ from layer to layer."""

    tree: Tree

    @property
    def sizes(self) -> Sizes:
        found = {n for dims in jax.tree.leaves(self.tree, is_leaf=_is_dims) for n in dims}
        return dict(zip(string.ascii_letters, sorted(found)))

    @property
    def letters(self) -> Tree:
        letter = {size: name for name, size in self.sizes.items()}
        return jax.tree.map(lambda dims: "".join(letter[n] for n in dims), self.tree, is_leaf=_is_dims)


def _is_dims(node: Tree) -> bool:
    return isinstance(node, tuple)


@dataclass(frozen=True)
class UNet:
    """Sizes of a 3-D U-Net; each level has half of the sides and twice the channels of the one above."""

    batch: int = 2
    side: int = 32
    channels: int = 4
    levels: int = 2
    classes: int = 4
    dtype: str = "bfloat16"

    def weights(self) -> Tree:
        """Returns the dimensions of all weights."""
        widths = [self.channels << level for level in range(self.levels + 1)]

        def twice(inputs: int, outputs: int) -> Tree:
            return [{"kernel": (3, 3, 3, inputs, outputs), "scale": (outputs,)},
                    {"kernel": (3, 3, 3, outputs, outputs), "scale": (outputs,)}]  # fmt: skip

        down = [twice(inputs, outputs) for inputs, outputs in pairwise([1, *widths])]
        up = [{"enlarge": (2, 2, 2, below, above), "both": twice(2 * above, above)}
              for above, below in pairwise(widths)]  # fmt: skip
        return {"down": down, "up": up, "classes": (1, 1, 1, widths[0], self.classes)}

    def scores(self, w: Tree, x: jax.Array) -> jax.Array:
        """Computes scores of classes per voxel of [B, Z, Y, X, 1]."""
        skips: list[jax.Array] = []
        for level, both in enumerate(w["down"]):
            x = self.twice(both, pool(x, 2) if level else x)
            skips.append(x)
        for up, skip in zip(reversed(w["up"]), reversed(skips[:-1])):
            x = self.twice(up["both"], jnp.concatenate([enlarge(x, up["enlarge"]), skip], axis=-1))
        return convolve(x, w["classes"])

    def twice(self, both: Tree, x: jax.Array) -> jax.Array:
        for w in both:
            x = jax.nn.relu(batch_norm(convolve(x, w["kernel"]), w["scale"]))
        return x


@dataclass(frozen=True)
class ResNet:
    """Sizes of a ResNet of bottleneck blocks (He et al., 2016); `blocks` per stage, each stage of half of the sides."""

    batch: int = 4
    side: int = 32
    channels: int = 8
    blocks: Sequence[int] = (1, 1)
    classes: int = 8
    dtype: str = "bfloat16"

    def weights(self) -> Tree:
        """Returns the dimensions of all weights."""
        stages, inputs = list[Tree](), self.channels
        for level, count in enumerate(self.blocks):
            width, stage = self.channels << level, list[Tree]()
            for block in range(count):
                part = {"reduce": (1, 1, inputs, width), "middle": (3, 3, width, width),
                        "expand": (1, 1, width, 4 * width), "scales": [(width,), (width,), (4 * width,)]}  # fmt: skip
                stage.append(part | ({} if block else {"skip": (1, 1, inputs, 4 * width)}))
                inputs = 4 * width
            stages.append(stage)
        return {"stem": (7, 7, 3, self.channels), "scale": (self.channels,), "stages": stages,
                "classes": (inputs, self.classes)}  # fmt: skip

    def scores(self, w: Tree, x: jax.Array) -> jax.Array:
        """Computes scores of classes [B, 1, classes] of [B, Y, X, 3]."""
        x = pool(jax.nn.relu(batch_norm(convolve(x, w["stem"], 2), w["scale"])), 3)
        for level, stage in enumerate(w["stages"]):
            for number, part in enumerate(stage):
                x = self.block(part, x, 2 if level and not number else 1)
        return jnp.mean(x.astype(F32), (1, 2))[:, None] @ w["classes"]

    def block(self, w: Tree, x: jax.Array, stride: int) -> jax.Array:
        reduce, middle, expand = w["scales"]
        y = jax.nn.relu(batch_norm(convolve(x, w["reduce"]), reduce))
        y = jax.nn.relu(batch_norm(convolve(y, w["middle"], stride), middle))
        y = batch_norm(convolve(y, w["expand"]), expand)
        return jax.nn.relu(y + (convolve(x, w["skip"], stride) if "skip" in w else x))


def images(model: UNet | ResNet, axes: Mapping[str, int], space: Sequence[Axes]) -> Program:
    """Returns the training step on images divided by batch over `data` and by their sides over the axes of `space`."""
    shapes = Shapes(model.weights())
    table = dict.fromkeys(jax.tree.leaves(shapes.letters), ())
    layout = Layout(axes, table)
    sides = (model.batch, *[model.side] * len(space))
    volume = isinstance(model, UNet)
    inputs = jax.ShapeDtypeStruct((*sides, 1 if volume else 3), "float32", sharding=layout.sharding("data", *space))
    spec = ("data", *space) if volume else ("data",)
    targets = jax.ShapeDtypeStruct(sides if volume else sides[:1], "int32", sharding=layout.sharding(*spec))

    def loss(w: Tree, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        scores = model.scores(w, inputs.astype(model.dtype))
        return cross_entropy(scores, targets if volume else targets[:, None])

    return training(layout, shapes.sizes, shapes.letters, loss, (inputs, targets))
