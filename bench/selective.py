"""Transformers that compute part of each layer again, as their projects do: torchtitan's selective activation
checkpointing, kernels for attention, JAX's products without batch dimensions, chosen products as in MaxText.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import jax
from models.dense import Transformer
from models.layers import Place, attention, feed_forward, rms_norm
from models.layout import Tree


@dataclass(frozen=True)
class _Variant(Transformer):
    @classmethod
    def of(cls, model: Transformer) -> Self:
        return cls(**{field.name: getattr(model, field.name) for field in fields(Transformer)})

    def _keeps_product(self, primitive: Any, *values: Any, **parameters: Any) -> bool:
        """Keeps products of activations and weights, and the results of attention; no scores."""
        if primitive.name != "dot_general":
            return False
        (contracted, _), (batch, _) = parameters["dimension_numbers"]
        return not batch or values[0].shape[contracted[0]] == self.sequence


@dataclass(frozen=True)
class Selective(_Variant):
    """Keeps every second product of activations and weights, and the results of attention; all else is computed again.
    """

    def repeat(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes layer after layer in a loop over stacked weights."""
        products = 0

        def is_kept(primitive: Any, *values: Any, **parameters: Any) -> bool:
            nonlocal products
            if not self._keeps_product(primitive, *values, **parameters):
                return False
            if parameters["dimension_numbers"][1][0]:
                return True
            products += 1
            return products % 2 == 1

        block = jax.checkpoint(lambda x, w: self.block(w, x, place), policy=is_kept)
        return jax.lax.scan(lambda x, w: (block(x, w), None), x, w)[0]


@dataclass(frozen=True)
class Products(_Variant):
    """Keeps the products of activations and weights; all else is computed again."""

    def repeat(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes layer after layer in a loop over stacked weights."""
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        block = jax.checkpoint(lambda x, w: self.block(w, x, place), policy=policy)
        return jax.lax.scan(lambda x, w: (block(x, w), None), x, w)[0]


@dataclass(frozen=True)
class Chosen(_Variant):
    """Keeps some products of a layer by their numbers, and by `attends` the results of attention; all else is computed
    again. Products with weights count: 0 is the query, then key, value, output, up, gate, down.
    """

    kept: frozenset[int] = frozenset()
    attends: bool = False

    def repeat(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes layer after layer in a loop over stacked weights."""
        products = 0

        def is_kept(primitive: Any, *values: Any, **parameters: Any) -> bool:
            nonlocal products
            if primitive.name != "dot_general":
                return False
            if parameters["dimension_numbers"][1][0]:
                return self.attends and self._keeps_product(primitive, *values, **parameters)
            products += 1
            return products - 1 in self.kept

        block = jax.checkpoint(lambda x, w: self.block(w, x, place), policy=is_kept)
        return jax.lax.scan(lambda x, w: (block(x, w), None), x, w)[0]


@dataclass(frozen=True)
class Kernel(_Variant):
    """Keeps what PyTorch keeps: the operands and results of ops, but neither the scores of attention, which its kernel
    computes again (Dao et al., 2022), nor what norms and functions compute inside.
    """

    def block(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes one layer: [B, S, M] to [B, S, M]."""
        attend = jax.checkpoint(
            lambda w, x: attention(w, x, place, self.positions == "rotary"), policy=self._keeps_product
        )
        norm, between = jax.checkpoint(rms_norm), jax.checkpoint(self.between)
        x = x + place(attend(w["attention"], norm(x, w["attention_norm"])), "BSM")
        return x + place(feed_forward(w["dense"], norm(x, w["dense_norm"]), place, between), "BSM")
