"""Moves a program to another mesh: axes keep their names and get other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.checked_call import checked
from ...ir.diagnostics import Location, fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber
from ...ir.graph.module import Module, Stage
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import REPLICATED, AnySharding, Sharding, TupleSharding


@checked
def remesh(module: Module, sizes: Mapping[str, int]) -> None:
    """Sets the axis sizes of all named meshes of a GLOBAL module, in place; devices count 0, 1, 2, ..

    A device list is read as axes of a mesh that the module names. Raises CompileError, and leaves the module as it is,
    for a module of another stage, an axis that no mesh has, a size below 1, device lists that are no axes of a named
    mesh, sub-axes that do not divide the new size, and manual regions that number the devices of the mesh.
    """
    if module.stage is not Stage.GLOBAL:
        fail(f"meshes are resized before propagation, {module.name} is {module.stage.value}")
    for axis, size in sizes.items():
        check_size(axis, size)
    meshes = set(module.meshes.values())
    named = list(module.meshes.values())
    annotated = [(i, i.annotation) for computation in module for i in computation]
    found = [(i, _resized(a, i, sizes, meshes, named)) for i, a in annotated if a is not None]
    known = {name for mesh in meshes for name, _ in mesh.axes}
    unknown = sorted(set(sizes) - known)
    if unknown:
        fail(f"no mesh of the program has an axis '{unknown[0]}'", help="axes: " + (", ".join(sorted(known)) or "none"))
    if any(resized(mesh, sizes) != mesh for mesh in meshes):
        _refuse_device_numbers(module)
    for instruction, sharding in found:
        instruction.sharding, instruction.shardy = sharding, None
        instruction.frontend_attributes = {
            k: v for k, v in instruction.frontend_attributes.items() if k != "xla.sdy.sharding"
        }
    module.meshes = {symbol: resized(mesh, sizes) for symbol, mesh in module.meshes.items()}
    module.num_partitions = 1


def check_size(axis: str, size: object, location: Location | None = None) -> None:
    """Raises CompileError for a size that no axis can have."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        fail(f"axis '{axis}' needs a size of at least 1", location)


def resized(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """Returns the mesh with other axis sizes, in the default device order."""
    return replace(mesh, axes=tuple((name, sizes.get(name, size)) for name, size in mesh.axes), order=None)


def _refuse_device_numbers(module: Module) -> None:
    """Raises CompileError for a program with collectives, or with arithmetic of device numbers. Their numbers are those
    of coordinates of its own mesh. On another one they may still be valid, and mean other devices.
    """
    for computation in module:
        for instruction in computation:
            if instruction.op.is_collective or instruction.op.interface(DeviceNumber):
                fail(f"{instruction.op.opcode} {instruction.name} is written for the devices of the program's own "
                     "mesh, so the program cannot move to another one", instruction.location,
                     help="make the program again for the other mesh: its manual regions number their devices")


def _resized(
    annotation: AnySharding, instruction: Instruction, sizes: Mapping[str, int], meshes: set[Mesh],
    named: Sequence[Mesh],
) -> AnySharding:
    """Returns the annotation of an instruction on the resized mesh, and adds those of its shardings to `meshes`."""

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
        meshes.add(sharding.mesh)
        mesh = resized(sharding.mesh, sizes)
        for ref in _refs(sharding):
            if ref.size and mesh.axis_size(ref.name) % (ref.pre * ref.size):
                fail(f"axis '{ref.name}' of size {mesh.axis_size(ref.name)} has no part ({ref.pre}){ref.size}",
                     instruction.location)
        return sharding.with_mesh(mesh)

    return TupleSharding(tuple(map(one, annotation.elements))) if isinstance(annotation, TupleSharding) \
        else one(annotation)


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
