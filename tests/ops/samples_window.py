"""Samples of reduce-window: strides, padding (negative too), both dilations, other computations, several arrays.

Initial values that are no identity count once per window, whatever lies outside of the array.
"""

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

# max(|a|, |b|): not one binary op.
_GREATEST_SIZE = """
HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] abs(a)
  d = f32[] abs(b)
  ROOT r = f32[] maximum(c, d)
}
ENTRY e {
  x = f32[6,5] parameter(0)
  i = f32[] parameter(1)
  ROOT r = f32[7,5] reduce-window(x, i), window={size=3x3 pad=2_1x1_1}, to_apply=f
}
"""

# Associative, but neither commutative nor known to have an identity: (a, b) after (c, d) as maps x -> a x + b.
_AFFINE = """
HloModule m
f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ac = s32[] multiply(a, c)
  bc = s32[] multiply(b, c)
  s = s32[] add(bc, d)
  ROOT t = (s32[], s32[]) tuple(ac, s)
}
ENTRY e {
  x = s32[3,7] parameter(0)
  y = s32[3,7] parameter(1)
  i = s32[] constant(2)
  j = s32[] constant(5)
  ROOT r = (s32[3,9], s32[3,9]) reduce-window(x, y, i, j),
    window={size=1x4 stride=1x2 pad=0_0x3_4 lhs_dilate=1x2}, to_apply=f
}
"""

# The parameters are taken in the other order.
_REVERSED = """
HloModule m
f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ca = s32[] multiply(c, a)
  da = s32[] multiply(d, a)
  s = s32[] add(da, b)
  ROOT t = (s32[], s32[]) tuple(ca, s)
}
ENTRY e {
  x = s32[9,2] parameter(0)
  y = s32[9,2] parameter(1)
  i = s32[] constant(3)
  j = s32[] constant(-1)
  ROOT r = (s32[9,2], s32[9,2]) reduce-window(x, y, i, j), window={size=3x1 pad=2_2x0_0 rhs_dilate=2x1}, to_apply=f
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
        _pool("add", "s32", "5,7", "6,8", "size=3x2 pad=2_1x1_1", "5"),
        _pool("add", "s32", "8", "8", "size=8 pad=7_0", "5"),
        _pool("add", "u16", "3,8", "3,8", "size=1x8 pad=0_0x0_7", "7"),
        _pool("add", "s8", "9", "1", "size=9", "100"),
        _pool("multiply", "s32", "7", "8", "size=3 stride=2 pad=2_2 lhs_dilate=2", "-3"),
        _pool("maximum", "s32", "6,4", "6,3", "size=3x2 stride=1x2 pad=2_2x1_1 rhs_dilate=2x1", "2"),
        _pool("minimum", "bf16", "5", "13", "size=2 pad=3_2 lhs_dilate=2", "0.5"),
        _pool("and", "u8", "6", "7", "size=2 pad=1_1", "7"),
        _pool("xor", "u32", "6", "8", "size=3 pad=2_2", "9"),
        _pool("add", "f32", "4", "9", "size=2 pad=3_3", "-0.0"),
        _OTHER,
        _GREATEST_SIZE,
        _GREATEST_SIZE.replace("f32", "f8e5m2"),
        _AFFINE,
        _REVERSED,
        _ARGMAX,
    ]
}
