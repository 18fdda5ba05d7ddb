"""Programs of two loops, of which the second reads what the first one saves."""

from __future__ import annotations

from functools import cache
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module

STATE = "(s32[], f32[8,64], f32[5,8,64], f32[5,8,64], f32[5,8,64], f32[5,64])"
BACK = "(s32[], f32[8,64], f32[5,8,64], f32[5,8,64], f32[5,8,64], f32[5,64], f32[5,8,64])"
# Each trip saves its carry x, t = tanh(x w) and s = t sin(x); the second loop reads all three.
LOOPS = f"""HloModule m
more {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }}
layer {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,64] get-tuple-element(p), index=1
  xs = f32[5,8,64] get-tuple-element(p), index=2
  ts = f32[5,8,64] get-tuple-element(p), index=3
  ss = f32[5,8,64] get-tuple-element(p), index=4
  ws = f32[5,64] get-tuple-element(p), index=5
  zero = s32[] constant(0)
  one = s32[] constant(1)
  w1 = f32[1,64] dynamic-slice(ws, i, zero), dynamic_slice_sizes={{1,64}}
  w = f32[64] reshape(w1)
  wb = f32[8,64] broadcast(w), dimensions={{1}}
  xw = f32[8,64] multiply(x, wb)
  t = f32[8,64] tanh(xw)
  sn = f32[8,64] sine(x)
  s = f32[8,64] multiply(t, sn)
  y = f32[8,64] add(x, s)
  x1 = f32[1,8,64] reshape(x)
  t1 = f32[1,8,64] reshape(t)
  q1 = f32[1,8,64] reshape(s)
  nx = f32[5,8,64] dynamic-update-slice(xs, x1, i, zero, zero)
  nt = f32[5,8,64] dynamic-update-slice(ts, t1, i, zero, zero)
  ns = f32[5,8,64] dynamic-update-slice(ss, q1, i, zero, zero)
  j = s32[] add(i, one)
  ROOT r = {STATE} tuple(j, y, nx, nt, ns, ws) }}
less {{ p = {BACK} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }}
back {{ p = {BACK} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  g = f32[8,64] get-tuple-element(p), index=1
  xs = f32[5,8,64] get-tuple-element(p), index=2
  ts = f32[5,8,64] get-tuple-element(p), index=3
  ss = f32[5,8,64] get-tuple-element(p), index=4
  ws = f32[5,64] get-tuple-element(p), index=5
  gs = f32[5,8,64] get-tuple-element(p), index=6
  zero = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant(4)
  at = s32[] subtract(last, i)
  x1 = f32[1,8,64] dynamic-slice(xs, at, zero, zero), dynamic_slice_sizes={{1,8,64}}
  t1 = f32[1,8,64] dynamic-slice(ts, at, zero, zero), dynamic_slice_sizes={{1,8,64}}
  q1 = f32[1,8,64] dynamic-slice(ss, at, zero, zero), dynamic_slice_sizes={{1,8,64}}
  x = f32[8,64] reshape(x1)
  t = f32[8,64] reshape(t1)
  s = f32[8,64] reshape(q1)
  a = f32[8,64] multiply(g, t)
  b = f32[8,64] add(a, s)
  h = f32[8,64] multiply(b, x)
  h1 = f32[1,8,64] reshape(h)
  ng = f32[5,8,64] dynamic-update-slice(gs, h1, at, zero, zero)
  j = s32[] add(i, one)
  ROOT r = {BACK} tuple(j, h, xs, ts, ss, ws, ng) }}
ENTRY e {{
  x = f32[8,64] parameter(0)
  ws = f32[5,64] parameter(1)
  zero = s32[] constant(0)
  f = f32[] constant(0)
  empty = f32[5,8,64] broadcast(f), dimensions={{}}
  start = {STATE} tuple(zero, x, empty, empty, empty, ws)
  up = {STATE} while(start), condition=more, body=layer
  y = f32[8,64] get-tuple-element(up), index=1
  xs = f32[5,8,64] get-tuple-element(up), index=2
  ts = f32[5,8,64] get-tuple-element(up), index=3
  ss = f32[5,8,64] get-tuple-element(up), index=4
  then = {BACK} tuple(zero, y, xs, ts, ss, ws, empty)
  down = {BACK} while(then), condition=less, body=back
  h = f32[8,64] get-tuple-element(down), index=1
  gs = f32[5,8,64] get-tuple-element(down), index=6
  ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, gs)
}}
"""
STACK = 5 * 8 * 64 * 4  # bytes


def random_scan(seed: int) -> Module:
    """Returns the gradients of random layers, as JAX writes them, for one device."""
    return hloom.partition(random_layers(seed))


def random_layers(seed: int, devices: int = 1) -> Module:
    """Returns the gradients of random layers before partitioning; the rows of their input are divided."""
    whole = hloom.parse(_lowered(seed))
    if devices > 1:
        whole.num_partitions = devices
        whole.entry.parameters[1].sharding = hloom.parse_sharding(f"{{devices=[{devices},1]<=[{devices}]}}")
    return whole


@cache
def _lowered(seed: int) -> str:
    """What JAX writes for random layers, for all tests of the seed."""
    jax = pytest.importorskip("jax")
    jnp, rng = jax.numpy, np.random.default_rng(seed)
    steps = [(int(rng.integers(5)), int(rng.integers(4))) for _ in range(int(rng.integers(4, 12)))]
    layers = int(rng.integers(2, 5))

    def layer(x: Any, weights: Any) -> Any:
        values = [x, x * weights[0]]
        for kind, back in steps:
            a, b = values[-1], values[max(len(values) - 1 - back, 0)]
            choices = (jnp.tanh(a) * b, a @ weights, jnp.exp(-jnp.abs(a)) + b, a / (1 + b * b), jnp.sin(a).T @ b / 8)
            values.append(choices[kind])  # JAX drops the others
        return x + values[-1], values[len(values) // 2].sum()

    def loss(weights: Any, x: Any) -> Any:
        x, sums = jax.lax.scan(layer, x, weights)
        return (x**2).sum() + sums.sum()

    arrays = [rng.normal(size=shape).astype(np.float32) / 8 for shape in ((layers, 8, 8), (8, 8))]
    return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*arrays).compiler_ir("hlo").as_hlo_text()
