"""Samples of reduce-window: strides, padding (negative too), both dilations, other computations, two arrays."""

from __future__ import annotations


def _pool(opcode: str, element: str, dims: str, result: str, window: str, init: str) -> str:
    return f"""
HloModule m
f {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT r = {element}[] {opcode}(a, b) }}
ENTRY e {{
  x = {element}[{dims}] parameter(0)
  i = {element}[] constant({init})
  ROOT r = {element}[{result}] reduce-window(x, i), window={{{window}}}, to_apply=f
}}
"""


# `or`, written so that it is not known as a monoid.
_OTHER = """
HloModule m
f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] not(a)
  d = s32[] not(b)
  e = s32[] and(c, d)
  ROOT r = s32[] not(e)
}
ENTRY e {
  x = s32[5,8] parameter(0)
  i = s32[] constant(0)
  ROOT r = s32[5,4] reduce-window(x, i), window={size=2x3 stride=1x2 pad=1_0x1_0}, to_apply=f
}
"""

_ARGMAX = """
HloModule m
f {
  v = f32[] parameter(0)
  k = s32[] parameter(1)
  w = f32[] parameter(2)
  l = s32[] parameter(3)
  g = pred[] compare(v, w), direction=GE
  m = f32[] select(g, v, w)
  j = s32[] select(g, k, l)
  ROOT t = (f32[], s32[]) tuple(m, j)
}
ENTRY e {
  x = f32[4,9] parameter(0)
  n = s32[4,9] iota(), iota_dimension=1
  i = f32[] constant(-inf)
  z = s32[] constant(0)
  ROOT r = (f32[4,3], s32[4,3]) reduce-window(x, n, i, z), window={size=1x3 stride=1x3}, to_apply=f
}
"""

SAMPLES: dict[str, list[str]] = {
    "reduce-window": [
        _pool("maximum", "f32", "2,6,6,3", "2,3,3,3", "size=1x2x2x1 stride=1x2x2x1", "-inf"),
        _pool("add", "f32", "2,7", "2,7", "size=1x7 pad=0_0x6_0", "0"),
        _pool("add", "s32", "6,7", "6,6", "size=3x3 stride=1x2 pad=1_1x2_4", "0"),
        _pool("add", "s32", "9", "3", "size=3 stride=2 pad=-1_-1", "0"),
        _pool("multiply", "s32", "5", "5", "size=3 pad=2_2 rhs_dilate=2", "1"),
        _pool("minimum", "s32", "4", "8", "size=2 pad=1_1 lhs_dilate=2", "2147483647"),
        _pool("maximum", "bf16", "4,5", "2,4", "size=3x2", "-inf"),
        _pool("add", "f32", "4", "0", "size=6", "0"),
        _OTHER,
        _ARGMAX,
    ]
}
