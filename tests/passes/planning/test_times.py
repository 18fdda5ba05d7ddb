"""Times of clusters against the forecast of the partitioned program."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.cost.presets import PRESETS
from hloom.ir.sharding.mesh import AxisRef
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import Effort, judge
from hloom.passes.planning.model import Model
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.written import annotated

SOFTMAX = """HloModule m
most { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  p = f32[4096,32768] parameter(0)
  x = f32[4096,32768] multiply(p, p)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[4096] reduce(x, low), dimensions={1}, to_apply=most
  mm = f32[4096,32768] broadcast(m), dimensions={0}
  s = f32[4096,32768] subtract(x, mm)
  e = f32[4096,32768] exponential(s)
  z = f32[4096] reduce(e, zero), dimensions={1}, to_apply=add
  zz = f32[4096,32768] broadcast(z), dimensions={0}
  ROOT y = f32[4096,32768] divide(e, zz)
}
"""


@pytest.mark.parametrize("machine", ["tpu-v3", "h100"])
def test_kernels_end_at_sums_over_what_is_divided(machine: str) -> None:
    """Divided by columns, both sums go over devices, and the numbers lie in memory before them. Rows need no exchange,
    and move less.
    """
    mesh = hloom.Mesh.of(d=8)
    context = PassContext(machine=PRESETS[machine].of_devices(8))
    clusters = Clusters(prepared(hloom.parse(SOFTMAX)), context.forms)
    model = Model(Classes(clusters, context.machine), Divisions(context.decider(8), [mesh.digits(AxisRef("d"))]))
    told, found = list[float](), list[float]()
    for dim in range(2):
        choice = {n: next(row for row, division in enumerate(c.divisions) if division == (dim,))
                  for n, c in enumerate(model.classes)}  # fmt: skip
        told.append(sum(float(c.computing[choice[n]]) for n, c in enumerate(model.classes)))
        found.append(judge(annotated(model, choice, mesh), context, 8, effort=Effort.QUICK).computing)
    assert told[1] > 1.2 * told[0]
    np.testing.assert_allclose(told, found, rtol=0.15)


SLICED = """HloModule m
ENTRY e {
  w = f32[4,2048,2048] parameter(0)
  layer = s32[] parameter(1)
  x = f32[8,2048] parameter(2)
  o = s32[] constant(0)
  s = f32[1,2048,2048] dynamic-slice(w, layer, o, o), dynamic_slice_sizes={1,2048,2048}
  r = f32[2048,2048] reshape(s)
  y = f32[8,2048] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[8,2048] tanh(y)
}
"""


def test_a_product_reads_the_slice_that_joins_its_kernel() -> None:
    """The weights are nearly all that is read: 16 MB, or an eighth of it if their columns are divided."""
    mesh = hloom.Mesh.of(d=8)
    context = PassContext(machine=PRESETS["tpu-v5p"].of_devices(8))
    clusters = Clusters(prepared(hloom.parse(SLICED)), context.forms)
    model = Model(Classes(clusters, context.machine), Divisions(context.decider(8), [mesh.digits(AxisRef("d"))]))
    whole = {n: c.row_of[(-1,)] for n, c in enumerate(model.classes)}
    told = sum(float(c.computing[whole[n]]) for n, c in enumerate(model.classes))
    found = judge(annotated(model, whole, mesh), context, 8, effort=Effort.QUICK).computing
    assert told == pytest.approx(found, rel=0.02)
    (product,) = (c for c in model.classes if any(m.relation.instruction.opcode == "dot" for m in c.example.members))
    assert min(product.computing) == pytest.approx(product.computing[product.row_of[(-1,)]] / 8, rel=0.05)


NORM = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  p = bf16[4096,32768] parameter(0)
  x = f32[4096,32768] convert(p)
  zero = f32[] constant(0)
  first = f32[32768] reduce(x, zero), dimensions={0}, to_apply=add
  xx = f32[4096,32768] multiply(x, x)
  second = f32[32768] reduce(xx, zero), dimensions={0}, to_apply=add
  mean = f32[4096,32768] broadcast(first), dimensions={1}
  spread = f32[4096,32768] broadcast(second), dimensions={1}
  moved = f32[4096,32768] subtract(x, mean)
  scaled = f32[4096,32768] divide(moved, spread)
  back = f32[4096,32768] add(scaled, x)
  ROOT y = bf16[4096,32768] convert(back)
}
"""


@pytest.mark.parametrize("dim", [0, 1])
def test_kernels_that_end_anyway_move_no_more(dim: int) -> None:
    """Both sums are over all rows: what follows is a kernel of its own, however the numbers are divided."""
    mesh = hloom.Mesh.of(d=8)
    context = PassContext(machine=PRESETS["tpu-v5p"].of_devices(8))
    clusters = Clusters(prepared(hloom.parse(NORM)), context.forms)
    model = Model(Classes(clusters, context.machine), Divisions(context.decider(8), [mesh.digits(AxisRef("d"))]))
    choice = {n: c.row_of[(dim,)] for n, c in enumerate(model.classes)}
    told = sum(float(c.computing[choice[n]]) for n, c in enumerate(model.classes))
    found = judge(annotated(model, choice, mesh), context, 8, effort=Effort.QUICK).computing
    assert told == pytest.approx(found, rel=0.02)


def test_a_loop_without_a_trip_count_runs_as_often_as_in_the_forecast() -> None:
    state = "(f32[512,512], f32[])"
    module = hloom.parse(f"""HloModule m
more {{ p = {state} parameter(0)
 left = f32[] get-tuple-element(p), index=1
 zero = f32[] constant(0)
 ROOT m = pred[] compare(left, zero), direction=GT }}
layer {{ p = {state} parameter(0)
 x = f32[512,512] get-tuple-element(p), index=0
 left = f32[] get-tuple-element(p), index=1
 y = f32[512,512] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 half = f32[] multiply(left, left)
 ROOT r = {state} tuple(y, half) }}
ENTRY e {{ s = {state} parameter(0)
 ROOT l = {state} while(s), condition=more, body=layer }}""")
    context = PassContext(machine=PRESETS["h100"].of_devices(2))
    on = MeshPlan(Classes(Clusters(prepared(module), context.forms), context.machine), context, hloom.Mesh.of(d=2), 0.0)
    assert on.undivided == pytest.approx(hloom.forecast(module, "h100").seconds, rel=0.2)
