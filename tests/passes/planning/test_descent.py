"""Choices are improved class by class, and by classes that change together."""

from __future__ import annotations

import math
from pathlib import Path

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.annotating.strip import strip_annotations
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.choice_costs import ChoiceCosts
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.descent import descend, whole_where_equal
from hloom.passes.planning.model import Model
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.resharding.table import WHOLE

MACHINE = Cluster(links=parse_links("100ns/40GB"), memory_bytes=1e12, points=2e13)
STATE = "(s32[], f32[512,64], f32[512,64], f32[5,64,64])"
GRADIENTS = f"""HloModule m
more {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }}
layer {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[512,64] get-tuple-element(p), index=1
  y = f32[512,64] get-tuple-element(p), index=2
  gs = f32[5,64,64] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  g = f32[64,64] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  g1 = f32[1,64,64] reshape(g)
  ng = f32[5,64,64] dynamic-update-slice(gs, g1, i, zero, zero)
  j = s32[] add(i, one)
  ROOT r = {STATE} tuple(j, x, y, ng) }}
ENTRY e {{
  x = f32[512,64] parameter(0)
  y = f32[512,64] parameter(1)
  w = f32[5,64,64] parameter(2)
  zero = s32[] constant(0)
  z = f32[] constant(0)
  empty = f32[5,64,64] broadcast(z), dimensions={{}}
  s = {STATE} tuple(zero, x, y, empty)
  l = {STATE} while(s), condition=more, body=layer
  g = f32[5,64,64] get-tuple-element(l), index=3
  ROOT n = f32[5,64,64] subtract(w, g) }}"""


def test_small_weights_with_divided_states_are_whole_where_that_costs_no_time() -> None:
    """Of all that a fully sharded step renews these are the weights of its normalizations, but for their moments."""
    machine = hloom.parse_machine("h100").of_devices(4)
    context, module = PassContext(machine=machine), hloom.parse(Path("examples/transformer_train.hlo").read_text())
    strip_annotations(module)
    classes = Classes(Clusters(prepared(module), context.forms), machine)
    on = MeshPlan(classes, context, Mesh.of(data=4), 1e12)
    on.usual.search(60.0)
    choice = dict(on.usual.found)["all sharded"]
    found = whole_where_equal(on.costs, choice, on.usual.renewed)
    before, after = on.costs.values([choice, found])
    assert after.objective == pytest.approx(before.objective, rel=1e-9)
    changed = {n: of for n, of in enumerate(on.model.classes) if found[n] != choice[n]}
    assert {of.division(found[n]) for n, of in changed.items()} == {(WHOLE,)}
    names = sorted(str(of.example.leaf and of.example.leaf.instruction.name).split(".")[0] for of in changed.values())
    assert names == [
        f"state__parameters____{norm}__" for norm in
        ("final_norm", "layers___0___attention_norm", "layers___0___mlp_norm", "layers___1___attention_norm")
    ]  # fmt: skip


def test_the_state_of_a_loop_changes_with_what_is_written_into_it() -> None:
    """Gradients are scattered in each trip, and their stack is moved once. Neither may change alone: the other would
    then be moved in each trip.
    """
    context, mesh = PassContext(machine=MACHINE.of_devices(4)), Mesh.of(data=4)
    classes = Classes(Clusters(prepared(hloom.parse(GRADIENTS)), context.forms), MACHINE)
    model = Model(classes, Divisions(context.decider(4), [mesh.digits(AxisRef("data"))]))
    costs = ChoiceCosts(model)
    stack, written, updated = 6, 10, 11
    wanted = {stack: (2,), written: (1,), updated: (1,), 2: (1,), 12: (1,), 8: (2,), 0: (0,), 1: (0,), 4: (0,), 5: (0,)}
    start = {n: c.row_of[wanted.get(n, (-1,))] for n, c in enumerate(model.classes)}
    assert descend(costs, start) == start
    assert descend(costs, start, together=0.0) == start  # its time is over
    found = descend(costs, start, together=math.inf)
    assert costs.value(found).hiding < costs.value(start).hiding
    own = [model.classes[n].division(found[n]) for n in (stack, written, updated)]
    assert own in ([(1,), (0,), (1,)], [(2,), (1,), (2,)])
    assert descend(costs, found, together=math.inf) == found
