"""Programs of few choices: the best of all forecasts is found, however far behind the model ranks it."""

from __future__ import annotations

import hloom
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.few_choices import best_of_few, has_few_choices
from hloom.passes.planning.judge import judge
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.time_left import WITHOUT_END

MACHINE = Cluster(links=parse_links("100ns/40GB"), memory_bytes=1e12, points=2e13)
# The transposed value is divided, and what the product reads is whole: each device transposes the whole parameter, and
# computes some rows of the product, where the model counts a gather.
BY_HAND = """HloModule m, num_partitions=4
ENTRY e {
  p = f32[256,64] parameter(0), sharding={replicated}
  v = f32[64,256] transpose(p), dimensions={1,0}, sharding={devices=[1,4]<=[4]}
  w = f32[64,256] custom-call(v), custom_call_target="Sharding", sharding={replicated}
  ROOT y = f32[64,64] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}, sharding={devices=[4,1]<=[4]}
}
"""


def on_mesh(module: hloom.Module, mesh: Mesh) -> MeshPlan:
    context = PassContext(machine=MACHINE)
    return MeshPlan(Classes(Clusters(prepared(module), context.forms), MACHINE), context, mesh, MACHINE.capacity)


def test_values_are_computed_again_where_the_model_counts_a_gather() -> None:
    module, context = hloom.parse(BY_HAND), PassContext(machine=MACHINE)
    by_hand = judge(module, context, 4).seconds
    hloom.strip_annotations(module)
    on = on_mesh(module, Mesh.of(data=4))
    assert has_few_choices(on)
    best = next(best_of_few(on, [], context, 0, WITHOUT_END))
    assert best.judged.seconds <= by_hand * (1 + 1e-9)
    assert best.value is not None
    assert best.value.seconds > 4 * best.judged.seconds
    assert not has_few_choices(on_mesh(module, Mesh.of(data=2, model=2)))
