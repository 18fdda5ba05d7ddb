"""The devices of a module: how many there are, and the mesh for writing propagated shardings.

All meshes in use must have the same number of devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.sharding.digit import Digits, refine
from ...ir.sharding.mesh import LARGEST_MESH, Mesh
from ...ir.sharding.sharding import AnySharding
from ...ir.tools.spmd import Order, parts
from ..base import PassContext


def num_devices(module: Module, context: PassContext) -> int:
    """Returns the number of devices. Raises CompileError if the program contradicts itself, or there are too many.

    The first of these that says a number wins: the meshes in use, the request, the header's num_partitions, meshes
    without a used axis.
    """
    found = _agreed_number(module, context)
    if found > LARGEST_MESH:
        fail(f"{found} devices are too many: device numbers must fit 32 bits")
    return found


def _agreed_number(module: Module, context: PassContext) -> int:
    sizes: dict[int, Instruction] = {}
    unused: set[int] = set()
    said: dict[int, tuple[AnySharding, Instruction]] = {}  # by the identities of annotations
    for computation in module:
        for instruction in computation:
            annotation = instruction.sharding if instruction.shardy is None else instruction.shardy
            if annotation is not None and id(annotation) not in said:
                said[id(annotation)] = annotation, instruction
    for annotation, instruction in said.values():
        for sharding in parts(annotation):
            if sharding.mesh is not None and sharding.mesh.axes:
                if sharding.fits_any_mesh:
                    unused.add(sharding.mesh.size)
                else:
                    sizes.setdefault(sharding.mesh.size, instruction)
    if len(sizes) > 1:
        first, second = list(sizes.items())[:2]
        fail(f"shardings are over {first[0]} and over {second[0]} devices", second[1].location,
             help="all meshes of a program must have the same number of devices")
    found = next(iter(sizes), None)
    wanted = context.num_devices
    if found is not None and wanted is not None and found != wanted:
        fail(f"shardings are over {found} devices, {wanted} are asked for", sizes[found].location,
             help="shardings give the number of devices; for another one resize their axes, as --mesh x=2,y=4 does")
    if found is None and module.meshes and wanted is None:
        return max(mesh.size for mesh in module.meshes.values())
    if module.num_partitions > 1:
        if wanted is not None and wanted != module.num_partitions:
            fail(f"the program is for {module.num_partitions} devices, {wanted} are asked for")
        return module.num_partitions if found is None else found
    return found or wanted or max(unused, default=0) or context.default_devices or 1


def main_mesh(module: Module, instructions: Iterable[Instruction], devices: int, order: Order) -> Mesh:
    """Returns the mesh whose axis names propagated shardings use; it does not depend on the order of instructions.

    That is Shardy's mesh, else the named one that most annotations use, else one that is made up later.
    """
    for mesh in module.meshes.values():
        if mesh.size == devices and mesh.order_key == order:
            return mesh
    used = Counter(s.mesh for i in instructions for s in parts(i.annotation) if s.mesh)
    fitting = [mesh for mesh in used if mesh.order_key == order and (mesh.named or order is not None)]
    ranked = sorted(fitting, key=lambda mesh: (not mesh.named, -used[mesh], str(mesh)))
    return next((m for m in ranked if m.size == devices), Mesh((("devices", devices),), None, named=False))


def anonymous_mesh(devices: int, order: Order, used: Iterable[Digits]) -> Mesh:
    """Returns a mesh whose axes are the digits in use, if these refine one another."""
    cuts = refine(used)
    sizes: list[int] = []
    below = 1
    for place in [*sorted(c for c in cuts if 1 < c < devices), devices]:
        if place % below:
            sizes = [devices]
            break
        if place > below:
            sizes.append(place // below)
            below = place
    axes = tuple((f"axis_{i}", size) for i, size in enumerate(reversed(sizes)))
    return Mesh(axes or (("axis_0", devices),), order, named=False)
