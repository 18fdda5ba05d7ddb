"""The launches of kernels: one for each nest of loops, one for all scalars of a computation, one for each product."""

from __future__ import annotations

from dataclasses import replace

import hloom
from hloom.cost.machine import Cluster
from hloom.cost.seconds import Clock

MACHINE = Cluster(launch_seconds=1.0)


def launches(text: str, machine: Cluster = MACHINE) -> dict[str, float]:
    """Returns the seconds that the ops of the entry take to launch, by name, where they take any."""
    module = hloom.parse(text)
    clock = Clock.of(module, machine)
    return {i.name: found for i in module.entry if (found := clock.parts(i).launches)}


TWO_RESULTS = """ENTRY e { x = f32[64,64] parameter(0)
  a = f32[64,64] tanh(x)
  b = f32[64,64] negate(a)
  ROOT t = (f32[64,64], f32[64,64]) tuple(a, b) }"""


def test_a_nest_of_loops_that_stores_two_values_is_launched_once() -> None:
    assert launches(TWO_RESULTS) == {"a": 1.0}
    assert launches(TWO_RESULTS, replace(MACHINE, fused=False)) == {"a": 1.0, "b": 1.0}


SCALARS = """ENTRY e { n = s32[] parameter(0)
  x = f32[64,64] parameter(1)
  one = s32[] constant(1)
  next = s32[] add(n, one)
  last = s32[] multiply(next, n)
  y = f32[64,64] tanh(x)
  ROOT t = (s32[], s32[], f32[64,64]) tuple(next, last, y) }"""


def test_all_scalars_are_launched_together() -> None:
    assert sorted(launches(SCALARS).values()) == [1.0, 1.0]
    assert launches(SCALARS)["y"] == 1.0
    assert len(launches(SCALARS, replace(MACHINE, fused=False))) == 3


def test_each_product_is_a_kernel() -> None:
    text = """ENTRY e { x = f32[64,64] parameter(0)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    assert launches(text) == {"y": 1.0, "z": 1.0}


def test_the_order_of_ops_does_not_change_the_launches() -> None:
    module = hloom.parse(SCALARS)
    module.entry.reorder([*[i for i in module.entry if not i.operands], *[i for i in module.entry if i.operands]])
    total = Clock.of(module, MACHINE).serial(module.entry).launches
    assert total == sum(launches(SCALARS).values())
