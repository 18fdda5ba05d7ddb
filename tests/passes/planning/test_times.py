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
from hloom.passes.planning.judge import judge
from hloom.passes.planning.model import Model
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
        found.append(judge(annotated(model, choice, mesh), context, 8, is_quick=True).computing)
    assert told[1] > 1.2 * told[0]
    np.testing.assert_allclose(told, found, rtol=0.15)
