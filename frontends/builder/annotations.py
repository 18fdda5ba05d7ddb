"""The annotation functions of GShard and GSPMD. Each returns its array with an annotation; values do not change.

Annotations are `Sharding` custom-calls, as those systems write them. A few are enough: propagation finds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.sharding import REPLICATED, ShardGroup, Sharding, ShardingKind
from ...ir.sharding.sharding_text import shardy_text
from ...ir.strings import BracedText
from . import emission as e
from .array import Array, wrap
from .placement import Placement, by_mesh_dims, mesh_of, sharding_of
from .tracing import current, emit, public
from .values import ArrayLike, Axes, lifted

SHARDING = "Sharding"


def annotated(x: Instruction, sharding: Sharding, unspecified: Sequence[int] = ()) -> Instruction:
    """Returns x with a sharding. Propagation may divide the unspecified dimensions further."""
    config = f"unspecified_dims=[{','.join(map(str, unspecified))}]" if unspecified else None
    made = emit("custom-call", x, shape=x.shape.without_layout(), custom_call_target=SHARDING, name="sharding",
                sharding=sharding)
    made.backend_config = config
    return made


@public
def replicate(x: ArrayLike) -> Array:
    """Returns x, whole on every device (GShard, section 3.2)."""
    return wrap(annotated(lifted("replicate", x), REPLICATED))


@public
def split(x: ArrayLike, dim: int, n: int) -> Array:
    """Returns x divided along one dimension into n tiles, tile i on device i (GShard, section 3.2)."""
    found = lifted("split", x)
    if n < 1:
        fail(f"split: {n} tiles")
    sizes = [n if d == e.axis_of("split", dim, found.shape.rank) else 1 for d in range(found.shape.rank)]
    return wrap(annotated(found, sharding_of("split", found, np.arange(n).reshape(sizes))))


@public
def shard(
    x: ArrayLike, placement: Placement, mesh: Mesh | None = None, priority: int | Mapping[int, int] | None = None
) -> Array:
    """Returns x with a placement, which is one of these:

    - an array of device numbers with one entry per tile (GShard, section 3.2): `shard(x, [[0, 1], [2, 3]])` divides
      both dimensions by two. The dimensions are those of x.
    - a tuple with the axes of each dimension: `shard(x, ("x", None, ("y", "z")))`; dimensions beyond are whole. The
      mesh is `mesh`, or that of `use_mesh`. `"?"` lets propagation divide a dimension further: `("x", "?")`.
    - a `Sharding`.

    With a priority (0 is the highest) propagation uses the axes of all dimensions, or of those that a dict names, only
    in the round of that priority, as in Shardy. Raises CompileError for axes that the mesh does not have.
    """
    found = lifted("shard", x)
    sharding = sharding_of("shard", found, placement, mesh)
    if priority is None:
        return wrap(annotated(found, sharding))
    return wrap(_with_priority(found, sharding, priority))


def _with_priority(x: Instruction, sharding: Sharding, priority: int | Mapping[int, int]) -> Instruction:
    """Annotates in Shardy's form, the only one that has priorities."""
    mesh = sharding.mesh
    if mesh is None or not mesh.named or not sharding.dims:
        fail("shard: a priority needs a placement by the axes of a named mesh", help="for example ('x', None)")
    ranks = dict.fromkeys(range(x.shape.rank), priority) if isinstance(priority, int) else dict(priority)
    if wrong := [d for d in ranks if not 0 <= d < x.shape.rank]:
        fail(f"shard: there is no dimension {wrong[0]} for a priority")
    dims = tuple(replace(dim, priority=ranks.get(d) if dim.axes else None) for d, dim in enumerate(sharding.dims))
    module = current().trace.module
    symbol = next((name for name, known in module.meshes.items() if known.axes == mesh.axes), None)
    if symbol is None:
        symbol = f"mesh_{len(module.meshes)}" if module.meshes else "mesh"
        module.meshes[symbol] = replace(mesh, symbol=symbol)
        entries = ", ".join(f"{name} = {_mesh_text(known)}" for name, known in module.meshes.items())
        module.frontend_attributes = {**module.frontend_attributes, "xla.sdy.meshes": BracedText(f"{{{entries}}}")}
    said = replace(sharding, dims=dims, mesh=module.meshes[symbol])
    made = emit("custom-call", x, shape=x.shape.without_layout(), custom_call_target=SHARDING, name="sharding")
    made.shardy = said
    made.frontend_attributes = {"xla.sdy.sharding": shardy_text(said, x.shape.rank)}
    return made


def _mesh_text(mesh: Mesh) -> str:
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    ids = "" if mesh.order is None else f", device_ids=[{', '.join(map(str, mesh.device_ids()))}]"
    return f"#sdy.mesh<[{axes}]{ids}>"


@public
def mesh_split(x: ArrayLike, mesh: Mesh | Any, dims_mapping: Sequence[int], unspecified_dims: Axes = ()) -> Array:
    """Returns x divided over a mesh: dimension i along mesh dimension `dims_mapping[i]`, or whole where that is -1
    (GSPMD, section 3.6).

        mesh_split(x, np.arange(8).reshape(2, 4), [0, -1, 1])

    The mesh is an array of device numbers, or a `Mesh`. Propagation may divide `unspecified_dims` further (partial
    specification, section 3.6).
    """
    found, devices = lifted("mesh_split", x), mesh_of(mesh)
    if len(dims_mapping) != found.shape.rank:
        fail(f"mesh_split: {len(dims_mapping)} entries map the dimensions of {e.shown(found)}, "
             f"which has {found.shape.rank}")
    used = [d for d in dims_mapping if d != -1]
    if wrong := [d for d in used if not 0 <= d < len(devices.axes)]:
        fail(f"mesh_split: there is no mesh dimension {wrong[0]}, the mesh has {len(devices.axes)}",
             help="-1 leaves a dimension whole")
    if len(set(used)) != len(used):
        fail(f"mesh_split: {list(dims_mapping)} uses a mesh dimension twice")
    unspecified = e.axes_of("mesh_split", unspecified_dims, found.shape.rank) if unspecified_dims is not None else ()
    return wrap(annotated(found, by_mesh_dims(devices, dims_mapping), unspecified))


@public
def shard_as(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Returns arrays of equal shapes that propagation shards alike (XLA's `shard_as`, JAX's `shard_alike`)."""
    return _grouped("shard_as", arrays)


@public
def shard_like(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Returns arrays of equal shapes that propagation shards alike, as far as other annotations allow."""
    return _grouped("shard_like", arrays)


def _grouped(kind: str, arrays: Sequence[ArrayLike]) -> tuple[Array, ...]:
    found = [lifted(kind, x) for x in arrays]
    for x in found[1:]:
        if x.shape.dims != found[0].shape.dims:
            fail(f"{kind}: {e.shown(found[0])} and {e.shown(x)} have different dimensions")
    trace = current().trace
    trace.groups += 1
    sharding = Sharding(ShardingKind.UNKNOWN, group=ShardGroup(kind, trace.groups))
    return tuple(wrap(annotated(x, sharding)) for x in found)
