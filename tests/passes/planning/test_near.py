"""Plans are improved by forecasts where the model does not know what the partitioner does."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.near import near
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.time_left import WITHOUT_END

pytest.importorskip("highspy")

MACHINE = Cluster(links=parse_links("100ns/40GB"), memory_bytes=1e12, points=2e13)


def test_values_are_computed_again_from_a_whole_parameter() -> None:
    """The model knows an exchange only, which takes longer."""
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[256,256] parameter(0)
  t = f32[256,256] tanh(x)
  s = f32[256,256] add(x, t)
  r = f32[256,256] transpose(s), dimensions={1,0}
  ROOT y = f32[256,256] add(r, t)
}""")
    context = PassContext(machine=MACHINE)
    classes = Classes(Clusters(prepared(module), context.forms), MACHINE)
    on = MeshPlan(classes, context, Mesh.of(data=4), MACHINE.capacity)
    on.search(2.0)
    name, choice, _ = on.proposals[0]
    first = on.candidate(name, choice, context, 0)
    (found,) = near(on, [first], context, 0, WITHOUT_END)
    assert found.name.startswith("near ")
    assert found.judged.seconds < 0.5 * first.judged.seconds
    assert hloom.prove(module, hloom.partition(found.module, machine=MACHINE)).is_equal
