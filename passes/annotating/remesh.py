"""Moves a program to another mesh: axes keep their names and get other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import REPLICATED, AnySharding, Sharding, TupleSharding


def remesh(module: Module, sizes: Mapping[str, int]) -> None:
    """Sets the axis sizes of all named meshes of a GLOBAL module, in place; devices count 0, 1, 2, ..

    A device list is read as axes of a mesh that the module names. Raises CompileError for an axis that no mesh has, for
    device lists that are no axes of a named mesh, and for sub-axes that do not divide the new size.
    """
    known = {name for mesh in module.meshes.values() for name, _ in mesh.axes}
    named = list(module.meshes.values())
    for computation in module:
        for instruction in computation:
            _remesh_instruction(instruction, sizes, known, named)
    unknown = sorted(set(sizes) - known)
    if unknown:
        fail(f"no mesh of the program has an axis '{unknown[0]}'", help="axes: " + (", ".join(sorted(known)) or "none"))
    module.meshes = {symbol: resized(mesh, sizes) for symbol, mesh in module.meshes.items()}
    module.num_partitions = 1


def resized(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """Returns the mesh with other axis sizes, in the default device order."""
    return replace(mesh, axes=tuple((name, sizes.get(name, size)) for name, size in mesh.axes), order=None)


def _remesh_instruction(
    instruction: Instruction, sizes: Mapping[str, int], known: set[str], named: Sequence[Mesh]
) -> None:
    annotation = instruction.annotation
    if annotation is None:
        return

    def one(sharding: Sharding) -> Sharding:
        if sharding.mesh is None:
            return sharding
        if not sharding.mesh.named:
            if sharding.is_replicated:
                return REPLICATED
            sharding = _with_names(sharding, named) or fail(
                "this sharding is a device list without axis names, so it cannot move to another mesh",
                instruction.location)
        assert sharding.mesh is not None
        known.update(name for name, _ in sharding.mesh.axes)
        mesh = resized(sharding.mesh, sizes)
        for ref in _refs(sharding):
            if ref.size and mesh.axis_size(ref.name) % (ref.pre * ref.size):
                fail(f"axis '{ref.name}' of size {mesh.axis_size(ref.name)} has no part ({ref.pre}){ref.size}",
                     instruction.location)
        return sharding.with_mesh(mesh)

    def every(value: AnySharding) -> AnySharding:
        return TupleSharding(tuple(map(one, value.elements))) if isinstance(value, TupleSharding) else one(value)

    instruction.sharding, instruction.shardy = every(annotation), None
    instruction.frontend_attributes = {
        k: v for k, v in instruction.frontend_attributes.items() if k != "xla.sdy.sharding"
    }


def _with_names(sharding: Sharding, named: Sequence[Mesh]) -> Sharding | None:
    """Returns a device list as axes of one of the meshes, None if it is none."""
    rank = len(sharding.dims)
    for mesh in named:
        if sharding.mesh is not None and mesh.size == sharding.mesh.size:
            found = Sharding.from_tiling(sharding.tiling(rank), mesh)
            if found is not None:
                return found
    return None


def _refs(sharding: Sharding) -> list[AxisRef]:
    return [a for d in sharding.dims for a in d.axes] + [*sharding.replicated, *sharding.unreduced, *sharding.manual]
