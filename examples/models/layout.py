"""Where the tensors of a model lie on a mesh: tables from the letters of a tensor's dimensions to mesh axes.

A weight is written by the letters of its dimensions, as in einsum, such as `MH` for [width, hidden]. A model has sizes
per letter, and each way to divide it is one table, as in the papers: `{"MH": ("data", "model"), ..}`. A tensor that the
table leaves out is left to propagation.

Letters: B batch, S sequence, M width, H hidden, N heads (of keys), Q queries per head of keys, D width of a head,
V vocabulary, P positions, R distances, L layers, E experts, G groups, C capacity, T stages, Z rounds.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

Tree = Any  # nested dicts, lists and tuples of leaves
Axes = str | tuple[str, ...] | None
Spec = tuple[Axes, ...]
Table = Mapping[str, Spec]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Layout:
    """A mesh, as axis names and sizes, and a table of tensors on it. No device is needed."""

    axes: Mapping[str, int]
    table: Table

    @property
    def devices(self) -> int:
        return math.prod(self.axes.values())

    @property
    def mesh(self) -> AbstractMesh:
        kinds = (AxisType.Auto,) * len(self.axes)
        return AbstractMesh(tuple(self.axes.values()), tuple(self.axes), axis_types=kinds)

    def sharding(self, *spec: Axes) -> NamedSharding:
        """Returns a sharding on the mesh; dimensions beyond `spec` are whole."""
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def place(self, x: jax.Array, letters: str) -> jax.Array:
        """Constrains a value whose dimensions are `letters`, if the table knows them."""
        spec = self.table.get(letters)
        return x if spec is None else jax.lax.with_sharding_constraint(x, self.sharding(*spec))

    def argument(self, letters: str, sizes: Sizes, dtype: str = "float32") -> jax.ShapeDtypeStruct:
        """Returns the shape of an argument whose dimensions are `letters`, with its sharding if the table knows it."""
        spec = self.table.get(letters)
        sharding = None if spec is None else self.sharding(*spec)
        return jax.ShapeDtypeStruct(tuple(sizes[letter] for letter in letters), dtype, sharding=sharding)

    def arguments(self, tree: Tree, sizes: Sizes, dtype: str = "float32") -> Tree:
        """Returns the shapes of a tree of letters."""
        return jax.tree.map(lambda letters: self.argument(letters, sizes, dtype), tree)

    def stacked(self, letter: str, axes: Axes = None) -> Layout:
        """Returns this layout for tensors with a leading dimension as well, divided over `axes`."""
        longer = {letter + letters: (axes, *spec) for letters, spec in self.table.items()}
        return replace(self, table={**self.table, **longer})


def stacked(letter: str, tree: Tree) -> Tree:
    """Puts a leading dimension before every tensor of a tree of letters."""
    return jax.tree.map(lambda letters: letter + letters, tree)


def count(tree: Tree, sizes: Sizes) -> int:
    """Returns the number of elements of a tree of letters."""
    return sum(math.prod(sizes[letter] for letter in letters) for letters in jax.tree.leaves(tree))
