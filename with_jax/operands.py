"""Finds the sharding of a value in the MLIR program that JAX is lowering.

The types of JAX say nothing of automatic axes, but the program does: its parameters have shardings, and so have the
results of constraints and of manual regions, such as those that Hloom puts into it.
"""

from __future__ import annotations

from typing import Any

from ..frontends.extras import imported
from ..frontends.hlo_text.shardings import parse_sharding
from ..ir.sharding.sharding import ShardingKind, leaf_shardings
from . import PURPOSE
from .meshes import spell

_HLO = "mhlo.sharding"


def sharding_of(jax: Any, value: Any, aval: Any, devices: int) -> Any:
    """Returns the sharding of a value of a program for some devices, on an abstract mesh; None if the program does not
    say.
    """
    ir = imported("jax.interpreters.mlir", PURPOSE).ir
    if not isinstance(value, ir.Value):  # several values, or a token
        return None
    found, operation = _attribute(ir, value)
    if isinstance(found, ir.StringAttr):  # without Shardy
        return _of_text(jax, found.value, aval, devices)
    mesh = found and _mesh(ir, found.mesh_or_ref, operation)
    if mesh is None or not len(mesh.axes) or len(mesh.device_ids):
        return None
    sdy = imported("jaxlib.mlir.dialects.sdy", PURPOSE)
    dims = [
        [sdy.AxisRefAttr(axis) for axis in sdy.DimensionShardingAttr(dim).axes] for dim in found.dimension_shardings
    ]
    if any(axis.sub_axis_info is not None for dim in dims for axis in dim):
        return None
    spec = [tuple(axis.name for axis in dim) for dim in dims[: len(aval.shape)]]  # random keys have one more
    return jax.sharding.NamedSharding(_abstract(jax, mesh, aval), jax.sharding.PartitionSpec(*spec))


def _of_text(jax: Any, text: str, aval: Any, devices: int) -> Any:
    (sharding,) = leaf_shardings(parse_sharding(text), 1)
    if sharding is None or sharding.has_manual or sharding.kind is ShardingKind.MAXIMAL:
        return None
    mesh, (spec,) = spell([sharding.tiling(len(aval.shape))], devices)
    return jax.sharding.NamedSharding(mesh, spec)


def _attribute(ir: Any, value: Any) -> tuple[Any, Any]:
    """Returns the sharding that a value has, of Shardy or as text of HLO, and an operation of its module."""
    sdy = imported("jaxlib.mlir.dialects.sdy", PURPOSE)
    if isinstance(value.owner, ir.Block):
        function = value.owner.owner.opview
        number = ir.BlockArgument(value).arg_number
        every = getattr(function, "arg_attrs", None)
        given = {a.name: a.attr for a in every[number]} if every is not None else {}
        named = given.get("sdy.sharding")
        return given.get(_HLO) if named is None else sdy.TensorShardingAttr(named), function
    made = value.owner.opview
    if isinstance(made, sdy.ShardingConstraintOp):
        return sdy.TensorShardingAttr(made.sharding), made
    if isinstance(made, sdy.ManualComputationOp):
        several = sdy.TensorShardingPerValueAttr(made.out_shardings)
        return sdy.TensorShardingAttr(several.shardings[ir.OpResult(value).result_number]), made
    if _HLO in made.attributes:
        return made.attributes[_HLO], made
    return None, made


def _mesh(ir: Any, mesh: Any, operation: Any) -> Any:
    """Returns a mesh of Shardy, which may be a symbol of the module around an operation; None if it is not there."""
    sdy = imported("jaxlib.mlir.dialects.sdy", PURPOSE)
    if not isinstance(mesh, ir.FlatSymbolRefAttr):
        return sdy.MeshAttr(mesh)
    top = operation.operation
    while top.parent is not None:
        top = top.parent
    for other in top.regions[0].blocks[0]:
        if isinstance(other, sdy.MeshOp) and other.sym_name.value == mesh.value:
            return sdy.MeshAttr(other.mesh)
    return None


def _abstract(jax: Any, mesh: Any, aval: Any) -> Any:
    """Returns a mesh of Shardy as one of JAX: that of the value's type or of the context if it has the same axes, for
    the types of axes are not in the program.
    """
    sdy = imported("jaxlib.mlir.dialects.sdy", PURPOSE)
    axes = {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}
    for own in (aval.sharding.mesh, jax.sharding.get_abstract_mesh()):
        if dict(own.shape) == axes:
            return own
    return jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))
