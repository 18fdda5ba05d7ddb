"""Shardings as people write them: a plan is no slower than any of them, for programs that renew no state, too."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.passes.planning.by_hand import batch_of, by_hand
from hloom.passes.planning.kept import Kept
from hloom.passes.planning.meshes import meshes_of
from hloom.passes.planning.prepared import prepared
from hloom.passes.resharding.table import WHOLE

from .test_plan import FAST, SLOW, STEP

LAUNCH = 5e-6  # seconds that each op takes at least
KERNELS = Cluster(links=parse_links("5us/10GB"), memory_bytes=1e9, points=1e12, launch_seconds=LAUNCH)
DECODE = """HloModule decode
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  table = f32[64,32] parameter(0)
  w = f32[32,32] parameter(1)
  out = f32[32,64] parameter(2)
  cache = f32[8,16,32] parameter(3)
  word = s32[8] parameter(4)
  at = s32[] parameter(5)
  zero = s32[] constant(0)
  zeros = s32[8] broadcast(zero), dimensions={}
  size = s32[] constant(64)
  sizes = s32[8] broadcast(size), dimensions={}
  back = s32[8] add(word, sizes)
  low = pred[8] compare(word, zeros), direction=LT
  place = s32[8] select(low, back, word)
  x = f32[8,32] gather(table, place), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,32}
  k = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  k1 = f32[8,1,32] reshape(k)
  new = f32[8,16,32] dynamic-update-slice(cache, k1, zero, at, zero)
  s = f32[8,16] dot(x, new), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_contracting_dims={2}
  least = f32[] constant(-inf)
  most = f32[8] reduce(s, least), dimensions={1}, to_apply=max
  mosts = f32[8,16] broadcast(most), dimensions={0}
  d = f32[8,16] subtract(s, mosts)
  p = f32[8,16] exponential(d)
  y = f32[8,32] dot(p, new), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_contracting_dims={1}
  r = f32[8,32] add(x, y)
  o = f32[8,64] dot(r, out), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[8,64], f32[8,16,32]) tuple(o, new)
}"""
RENEWED = """HloModule renewed
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
body { s = (s32[], f32[4,8], f32[8,8], f32[8,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  x = f32[4,8] get-tuple-element(s), index=1
  w = f32[8,8] get-tuple-element(s), index=2
  v = f32[8,4] get-tuple-element(s), index=3
  h = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[4,4] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[8,4] dot(h, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  k = f32[4,8] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  d = f32[8,8] dot(x, k), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nw = f32[8,8] subtract(w, d)
  nv = f32[8,4] subtract(v, g)
  rows = f32[4,8] sort(x), dimensions={0}, to_apply=less
  ROOT t = (s32[], f32[4,8], f32[8,8], f32[8,4]) tuple(m, rows, nw, nv) }
condition { s = (s32[], f32[4,8], f32[8,8], f32[8,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  four = s32[] constant(4)
  ROOT c = pred[] compare(n, four), direction=LT }
ENTRY e {
  x = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  v = f32[8,4] parameter(2)
  zero = s32[] constant(0)
  s = (s32[], f32[4,8], f32[8,8], f32[8,4]) tuple(zero, x, w, v)
  l = (s32[], f32[4,8], f32[8,8], f32[8,4]) while(s), condition=condition, body=body
  nw = f32[8,8] get-tuple-element(l), index=2
  nv = f32[8,4] get-tuple-element(l), index=3
  ROOT t = (f32[8,8], f32[8,4]) tuple(nw, nv)
}"""
LOOP = """HloModule loop
body { s = (s32[], f32[16,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  x = f32[16,8] get-tuple-element(s), index=1
  y = f32[16,8] tanh(x)
  ROOT t = (s32[], f32[16,8]) tuple(m, y) }
condition { s = (s32[], f32[16,8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  four = s32[] constant(4)
  ROOT c = pred[] compare(n, four), direction=LT }
ENTRY e {
  x = f32[16,8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[16,8]) tuple(zero, x)
  w = (s32[], f32[16,8]) while(s), condition=condition, body=body
  ROOT y = f32[16,8] get-tuple-element(w), index=1
}"""
TOWERS = """HloModule towers
ENTRY e {
  u = f32[8,16] parameter(0)
  i = f32[8,16] parameter(1)
  w = f32[16,32] parameter(2)
  v = f32[16,32] parameter(3)
  a = f32[8,32] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,32] dot(i, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  da = f32[8,32] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  db = f32[8,32] dot(s, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dw = f32[16,32] dot(u, da), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dv = f32[16,32] dot(i, db), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  nw = f32[16,32] subtract(w, dw)
  nv = f32[16,32] subtract(v, dv)
  ROOT t = (f32[16,32], f32[16,32]) tuple(nw, nv)
}"""
NORMALIZED = """HloModule normalized
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[32,8] parameter(0)
  w = f32[8,16] parameter(1)
  v = f32[16,16] parameter(2)
  z = f32[] constant(0)
  h = f32[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  total = f32[16] reduce(h, z), dimensions={0}, to_apply=sum
  totals = f32[32,16] broadcast(total), dimensions={1}
  c = f32[32,16] subtract(h, totals)
  y = f32[32,16] dot(c, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[16,16] dot(c, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  n = f32[16,16] subtract(v, g)
  d = f32[8,16] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  m = f32[8,16] subtract(w, d)
  ROOT t = (f32[8,16], f32[16,16]) tuple(m, n)
}"""

ROUTED = """HloModule routed
ENTRY e {
  x = f32[32,8] parameter(0)
  route = f32[32,4] parameter(1)
  v = f32[8,64] parameter(2)
  w = f32[8,64] parameter(3)
  a = f32[32,64] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  given = f32[4,8] dot(route, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  h = f32[4,64] dot(given, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[8,64] dot(given, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  m = f32[8,64] subtract(w, d)
  ROOT t = (f32[32,64], f32[8,64]) tuple(a, m)
}"""


@pytest.fixture(autouse=True)
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


def test_the_batch_is_found_in_caches_and_inputs_alike() -> None:
    for text, batch in ((DECODE, {"cache": 0, "word": 0}), (STEP, {"x": 0}), (LOOP, {}), (RENEWED, {})):
        module = prepared(hloom.parse(text))
        found = batch_of(module, Clock(SLOW, 1))
        assert {module.entry.parameters[number].name: dim for number, dim in found.items()} == batch


def test_the_batch_is_that_of_all_inputs_whatever_waits_for_sums_over_it() -> None:
    """A second tower has a batch of its own. Behind a normalization over the batch all products wait for its sums. What
    experts compute of rows that are sent to them is cut along the columns alone, which are no second batch.
    """
    for text, batch in ((TOWERS, {"u": 0, "i": 0}), (NORMALIZED, {"x": 0}), (ROUTED, {"x": 0, "route": 0})):
        module = prepared(hloom.parse(text))
        found = batch_of(module, Clock(SLOW, 1))
        assert {module.entry.parameters[number].name: dim for number, dim in found.items()} == batch


def test_all_axes_divide_the_batch_and_those_parameters_that_they_can() -> None:
    module, (mesh,) = hloom.parse(DECODE), meshes_of("2x4", None, hloom.parse(DECODE))
    table = Kept(0, (WHOLE, 1), "table=,model")
    found = dict(by_hand(module, {3: 0, 4: 0}, mesh, [table]))
    texts = {n: [str(p.sharding).partition(", ")[2] for p in m.entry.parameters] for n, m in found.items()}
    batch = ["[{'data','model'}, {}, {}]}", "[{'data','model'}]}"]
    assert [t[:5] for t in texts.values()] == [
        ["[{}, {'model'}]}", "[{}, {}]}", "[{}, {}]}", *batch],
        ["[{}, {'model'}]}", "[{'data','model'}, {}]}", "[{}, {'data','model'}]}", *batch],
    ]  # fmt: skip


SMALL = """HloModule small
ENTRY e {
  x = f32[16,64] parameter(0)
  w = f32[64,64] parameter(1)
  v = f32[64,64] parameter(2)
  a = f32[16,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[16,64] tanh(a)
  c = f32[16,64] dot(b, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[64,16] transpose(c), dimensions={1,0}
  e = f32[64,64] dot(d, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[64,64], f32[16,64]) tuple(e, b)
}
"""  # every device had better compute all of it


@pytest.mark.parametrize(
    ("text", "machine", "size"),
    [
        pytest.param(SMALL, PRESETS["h100"], "2x4", id="small"),
        pytest.param(DECODE, KERNELS, "2x2", id="decode"),
        pytest.param(DECODE, KERNELS, "4", id="decode on one axis", marks=pytest.mark.slow),
        pytest.param(DECODE, FAST, "2x2", id="decode on fast devices", marks=pytest.mark.slow),
        pytest.param(STEP, KERNELS, "2x2", id="step"),
        pytest.param(LOOP, KERNELS, "4", id="loop"),
    ],
)
def test_a_plan_is_no_slower_than_shardings_by_hand(text: str, machine: Cluster, size: str) -> None:
    module = hloom.parse(text)
    (mesh,) = meshes_of(size, None, module)
    found = hloom.plan(module, machine, mesh=size, seconds=1.5)
    for _, program in by_hand(module, batch_of(prepared(module), Clock(machine, 1)), mesh, undivided=True):
        assert found.seconds <= hloom.forecast(program, machine).seconds * (1 + 1e-9)
