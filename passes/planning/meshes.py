"""The meshes that a plan may use: given by sizes, by text, or all of two dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...ir.diagnostics import fail
from ...ir.divisors import divisors
from ...ir.graph.module import Module
from ...ir.sharding.mesh import Mesh, parse_sizes
from ...ir.tools.spmd import parts

_NAMES = ("data", "model")
_SIZES = re.compile(r"[1-9]\d*(x[1-9]\d*)*$")
ALL = "all"


def meshes_of(said: str | Mapping[str, int] | None, devices: int | None, module: Module) -> list[Mesh]:
    """Returns the meshes that `said` means: sizes of named axes (or `data=8,model=16`), sizes alone (`8x16`), `all`
    two-dimensional ones of this many devices, or by None the mesh of the program.

    Raises CompileError if the devices are not known, or are others than those of the mesh.
    """
    own = annotated_mesh(module)
    if said is None and own is not None and own.named and devices in (None, own.size):
        return [own]
    count = devices or (module.num_partitions if module.num_partitions > 1 else 0) or (own.size if own else 0)
    if said == ALL or said is None:
        if not count:
            fail("a plan needs a mesh, or a number of devices", help="such as --devices 8, or the mesh 8x16")
        return all_meshes(count) if said == ALL else [_mesh([count])]
    found = Mesh.of(**said) if isinstance(said, Mapping) else _read(said)
    if devices is not None and found.size != devices:
        fail(f"the mesh has {found.size} devices, {devices} are asked for")
    return [found]


def all_meshes(count: int) -> list[Mesh]:
    """Returns all meshes of one or two axes of this many devices, in both orders of the sizes."""
    return [_mesh([count // n, n] if n > 1 else [count]) for n in divisors(count)[:-1] or [1]]


def annotated_mesh(module: Module) -> Mesh | None:
    """Returns the mesh on which the annotations of a module divide values, in the order of device numbers: a named one
    if there is one. None without annotations, and if they are for different numbers of devices.
    """
    used = (s.mesh for c in module for i in c for s in parts(i.annotation) if not s.is_replicated)
    meshes = [mesh for mesh in dict.fromkeys(used) if mesh is not None]
    if len({mesh.size for mesh in meshes}) != 1:
        return None
    return next((Mesh.of(**dict(mesh.axes)) for mesh in meshes if mesh.named and mesh.axes), meshes[0])


def _read(text: str) -> Mesh:
    if _SIZES.match(text):
        return _mesh([int(n) for n in text.split("x")])
    try:
        sizes = parse_sizes(text.replace(" ", ""))
    except ValueError:
        sizes = {}
    if not sizes or not all(map(str.isidentifier, sizes)):
        fail(f"'{text}' is no mesh", help="write 8x16, data=8,model=16, or all")
    return Mesh.of(**sizes)


def _mesh(sizes: Sequence[int]) -> Mesh:
    names = _NAMES[: len(sizes)] if len(sizes) <= len(_NAMES) else [f"axis{n}" for n in range(len(sizes))]
    return Mesh.of(**dict(zip(names, sizes)))
