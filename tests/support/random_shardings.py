"""A random sharding from a numpy generator: each axis of the mesh on some dimension, or on none."""

from __future__ import annotations

import numpy as np
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling
from hloom.ir.types.shape import Shape


def random_sharding(rng: np.random.Generator, mesh: Mesh, shape: Shape) -> Sharding:
    """A sharding of an array of this shape over the mesh, its axes in random order."""
    dims: list[list[AxisRef]] = [[] for _ in shape.dims]
    axes: list[int] = list(map(int, rng.permutation(len(mesh.axes))))
    for axis in axes:
        place = int(rng.integers(-1, shape.rank)) if shape.rank else -1
        if place >= 0:
            dims[place].append(AxisRef(mesh.axes[axis][0]))
    entries = tuple(DimSharding(tuple(d)) for d in dims)
    return Sharding(ShardingKind.TILED, mesh, entries, spelling=Spelling.NAMED)
