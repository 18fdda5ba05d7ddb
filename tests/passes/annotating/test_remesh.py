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


REGION = """HloModule m, num_partitions=16,
 frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2, "m"=2, "b"=4]>}}
add { l = f32[] parameter(0)  r = f32[] parameter(1)  ROOT s = f32[] add(l, r) }
ENTRY e {
  x = f32[4,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"m\\"}, {\\"b\\"}]>"}
  l = f32[2,8] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={
   xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"m\\", ?}, {?}]>]>",
   xla.sdy.manual_axes="#sdy<manual_axes{\\"m\\"}>"}
  OP
  ROOT g = f32[4,8] custom-call(n), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={
   xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"m\\", ?}, {?}]>]>",
   xla.sdy.manual_axes="#sdy<manual_axes{\\"m\\"}>"}
}"""
SUM = ("n = f32[2,8] all-reduce(l), channel_id=1, use_global_device_ids=true, to_apply=add, "
       "replica_groups={{0,4},{1,5},{2,6},{3,7},{8,12},{9,13},{10,14},{11,15}}")  # fmt: skip
NUMBER = "p = u32[] partition-id()\n  c = f32[] convert(p)\n  n = f32[2,8] broadcast(c), dimensions={}"


@pytest.mark.parametrize(("op", "named"), [(SUM, "all-reduce n"), (NUMBER, "partition-id p")])
def test_numbers_of_devices_keep_their_mesh(op: str, named: str) -> None:
    """On `a` = 4 and `b` = 2 the groups are valid, too, and add what belongs to other coordinates of `m`."""
    module = hloom.parse(REGION.replace("OP", op))
    text = module.to_text()
    with pytest.raises(hloom.CompileError, match=f"{named} is written for the devices of the program's own mesh"):
        hloom.remesh(module, {"a": 4, "b": 2})
    assert module.to_text() == text
    hloom.remesh(module, {"b": 4})
    assert hloom.partition(module).devices == 16


def test_regions_without_numbers_of_devices_move() -> None:
    module = hloom.parse(REGION.replace("OP", "n = f32[2,8] tanh(l)"))
    hloom.remesh(module, {"a": 3, "b": 2})
    assert hloom.partition(module).devices == 12
