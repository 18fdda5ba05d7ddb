"""Quick judgements foretell the final ones."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.presets import parse_machine
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Effort, judge
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from support.training_steps import clipped_adam

pytest.importorskip("highspy")


def test_collectives_start_earlier_in_quick_and_list_schedules_too() -> None:
    """Data parallel, the order in which sums start at first is not the fastest."""
    machine = parse_machine("work=f32:100G;memory=10GB", "1us/1GB")
    module, context = hloom.parse(clipped_adam(2, 64, 256, 64, 16)), PassContext(machine=machine)
    classes = Classes(Clusters(prepared(module), context.forms), machine)
    on = MeshPlan(classes, context, Mesh.of(data=2, model=2), machine.capacity)
    on.usual.search(0.0)
    annotated = on.annotated(dict(on.usual.found)["all data parallel"])
    listed, quick, final = (judge(annotated, context, 4, effort=effort).seconds for effort in Effort)
    assert quick == pytest.approx(final, rel=1e-6)
    assert listed == pytest.approx(final, rel=1e-2)
