"""Programs on meshes of other sizes: `hloom.remesh`."""

from __future__ import annotations

import math

import hloom
import pytest
from support.command_line import EXAMPLES


def named() -> hloom.Module:
    return hloom.load(f"{EXAMPLES}/mlp_named.hlo")


@pytest.mark.parametrize("sizes", [{"x": 3}, {"x": 1, "y": 6}, {}])
def test_axes_get_other_sizes(sizes: dict[str, int]) -> None:
    module = named()
    hloom.remesh(module, sizes)
    wanted = {"x": 2, "y": 4, **sizes}
    meshes = [s.mesh for c in module for i in c if isinstance(s := i.sharding, hloom.Sharding)]
    assert {tuple(mesh.axes) for mesh in meshes if mesh is not None} == {tuple(wanted.items())}
    assert hloom.partition(module).devices == math.prod(wanted.values())


@pytest.mark.parametrize(
    ("sizes", "why"),
    [({"z": 2}, "no mesh of the program has an axis 'z'"), ({"x": 0}, "axis 'x' needs a size of at least 1"),
     ({"x": 2.0}, "axis 'x' needs a size of at least 1")],
)  # fmt: skip
def test_what_cannot_be_leaves_the_program_as_it_is(sizes: dict[str, int], why: str) -> None:
    module = named()
    with pytest.raises(hloom.CompileError, match=why):
        hloom.remesh(module, sizes)
    assert module.to_text() == named().to_text()


def test_programs_after_propagation_stay_on_their_mesh() -> None:
    with pytest.raises(hloom.CompileError, match="meshes are resized before propagation"):
        hloom.remesh(hloom.propagate(named()), {"x": 2})
