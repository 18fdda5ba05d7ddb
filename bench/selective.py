"""A transformer that computes part of each layer again, as torchtitan's selective activation checkpointing does."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
from models.dense import Transformer
from models.layers import Place
from models.layout import Tree


@dataclass(frozen=True)
class Selective(Transformer):
    """Keeps every second product of activations and weights, and the results of attention; all else is computed again.
    """

    @staticmethod
    def of(model: Transformer) -> Selective:
        return Selective(**{field.name: getattr(model, field.name) for field in fields(Transformer)})

    def repeat(self, w: Tree, x: jax.Array, place: Place) -> jax.Array:
        """Computes layer after layer in a loop over stacked weights."""
        products = 0

        def is_kept(primitive: Any, *values: Any, **parameters: Any) -> bool:
            nonlocal products
            if primitive.name != "dot_general":
                return False
            (contracted, _), (batch, _) = parameters["dimension_numbers"]
            if batch:
                return values[0].shape[contracted[0]] == self.sequence
            products += 1
            return products % 2 == 1

        block = jax.checkpoint(lambda x, w: self.block(w, x, place), policy=is_kept)
        return jax.lax.scan(lambda x, w: (block(x, w), None), x, w)[0]
