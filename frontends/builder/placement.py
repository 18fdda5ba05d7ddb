"""Placements: the ways in which users say where an array lies, and the `Sharding` that each means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling
from .emission import shown
from .tracing import mesh_or_current

AxesOfDim = str | Sequence[str] | None
Placement = Sharding | Sequence[Any] | np.ndarray[Any, Any]
"""A `Sharding`; the axes of each dimension (a tuple); or the device of each tile (an array, or nested lists)."""

OPEN = "?"
"""Stands among the axes of a dimension that propagation may divide further."""


def sharding_of(what: str, x: Instruction, placement: Placement, mesh: Mesh | None = None) -> Sharding:
    """Returns the sharding that a placement means for x. Raises CompileError if it does not fit."""
    if isinstance(placement, Sharding):
        found = placement
    elif isinstance(placement, tuple):
        found = over_axes(mesh_or_current(mesh), cast("tuple[AxesOfDim, ...]", placement), x.shape.rank)
    elif isinstance(placement, str):
        fail(f"{what}: {placement!r} is a text, not a tuple with the axes of each dimension", help=f"({placement!r},)")
    else:
        found = by_devices(what, x, placement)
    if found.dims and len(found.dims) != x.shape.rank:
        fail(f"{what}: the sharding has {len(found.dims)} dimensions, {shown(x)} has {x.shape.rank}")
    return found


def over_axes(mesh: Mesh, axes: Sequence[AxesOfDim], rank: int) -> Sharding:
    """Returns the sharding that divides each dimension by axes of the mesh; those not mentioned stay whole."""
    if len(axes) > rank:
        fail(f"{tuple(axes)!r} places {len(axes)} dimensions, the array has {rank}")
    dims = [(part,) if isinstance(part, str) else tuple(part or ()) for part in axes]
    dims += [()] * (rank - len(dims))
    closed = Sharding.over(mesh, *([a for a in part if a != OPEN] for part in dims))
    marked = tuple(
        DimSharding(dim.axes, OPEN in part) for dim, part in zip(closed.dims, dims, strict=True))
    return Sharding(ShardingKind.TILED, mesh, marked, spelling=Spelling.NAMED)


def mesh_of(devices: Mesh | Any) -> Mesh:
    """Returns a mesh, or the one without names for an array of device numbers. Raises CompileError."""
    if isinstance(devices, Mesh):
        return devices
    ids = np.asarray(devices)
    order = tuple(int(i) for i in ids.reshape(-1)) if ids.dtype.kind in "iu" else ()
    if not order or sorted(order) != list(range(len(order))):
        fail("a mesh is an array that holds each of the device numbers 0, 1, 2, .. once",
             help="for example numpy.arange(8).reshape(2, 4)")
    axes = tuple((f"axis_{n}", size) for n, size in enumerate(ids.shape))
    return Mesh(axes, None if order == tuple(range(len(order))) else order, named=False)


def by_devices(what: str, x: Instruction, devices: Any) -> Sharding:
    """Returns the sharding with one tile per entry of an array of device numbers. Raises CompileError."""
    mesh = mesh_of(devices)
    if len(mesh.axes) != x.shape.rank:
        fail(f"{what}: the device assignment has {len(mesh.axes)} dimensions, {shown(x)} has {x.shape.rank}")
    return by_mesh_dims(mesh, range(x.shape.rank))


def by_mesh_dims(mesh: Mesh, dims: Sequence[int]) -> Sharding:
    """Returns the sharding that divides dimension i by mesh dimension dims[i], or by none where that is -1."""
    parts = tuple(DimSharding((AxisRef(mesh.axes[d][0]),) if d >= 0 else ()) for d in dims)
    spelling = Spelling.NAMED if mesh.named else Spelling.V1 if mesh.order is not None else Spelling.V2
    return Sharding(ShardingKind.TILED, mesh, parts, spelling=spelling)
