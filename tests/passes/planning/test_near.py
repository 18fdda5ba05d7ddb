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
from hloom.passes.planning.near import near, neighbours
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


def test_neighbours_of_about_the_same_price_come_later() -> None:
    """Products of their own rows are alike, so that many pairs of their divisions cost the same."""
    rows = "\n".join(f"  x{n} = f32[64,64] parameter({n})\n  y{n} = f32[64,64] dot(x{n}, x{n}), "
                     "lhs_contracting_dims={1}, rhs_contracting_dims={0}" for n in range(4))  # fmt: skip
    shapes, names = ", ".join(["f32[64,64]"] * 4), ", ".join(f"y{n}" for n in range(4))
    module = hloom.parse(f"HloModule m\nENTRY e {{\n{rows}\n  ROOT r = ({shapes}) tuple({names})\n}}")
    context = PassContext(machine=MACHINE)
    classes = Classes(Clusters(prepared(module), context.forms), MACHINE)
    on = MeshPlan(classes, context, Mesh.of(data=4), MACHINE.capacity)
    whole = dict.fromkeys(range(len(on.model.classes)), 0)
    prices = [on.costs.value(choice).price(on.limit) for choice in neighbours(on, whole)]
    first = prices[: len({round(price / prices[0], 3) for price in prices if price < 1.01 * prices[0]})]
    assert len(prices) > len(first) > 0
    assert first == sorted(set(first))
    assert sorted(prices) != prices


def test_state_of_one_shape_may_be_divided_alike_at_once() -> None:
    module = hloom.parse("""HloModule m, input_output_alias={ {0}: (1, {}), {1}: (2, {}), {2}: (3, {}), {3}: (4, {}) }
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  m = f32[16,64] parameter(2)
  v = f32[16,64] parameter(3)
  u = f32[16,64] parameter(4)
  h = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(h)
  g = f32[16,64] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  a = f32[16,64] add(m, g)
  b = f32[16,64] maximum(v, g)
  c = f32[16,64] minimum(u, g)
  d = f32[16,64] divide(a, b)
  s = f32[16,64] multiply(d, c)
  n = f32[16,64] subtract(w, s)
  ROOT r = (f32[16,64], f32[16,64], f32[16,64], f32[16,64]) tuple(n, a, b, c)
}""")
    context = PassContext(machine=MACHINE)
    classes = Classes(Clusters(prepared(module), context.forms), MACHINE)
    on = MeshPlan(classes, context, Mesh.of(data=2, model=2), MACHINE.capacity)
    weight, *others = sorted(on.usual.renewed)
    assert len(others) == 3
    whole = dict.fromkeys(range(len(on.model.classes)), 0)
    one, other = (on.model.classes[weight].row_of[division] for division in ((0, 1), (1, 0)))
    alike = dict.fromkeys([weight, *others], one)
    assert {**whole, **alike} in neighbours(on, {**whole, **alike, **dict.fromkeys(others, other)})
    assert {**whole, **alike} not in neighbours(on, {**whole, **dict.fromkeys(alike, other)})
