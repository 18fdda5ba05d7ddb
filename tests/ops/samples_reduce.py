"""Samples of reduce: all monoids, several types, some, all and no dimensions, other computations, several arrays.

Where no dimension is reduced the initial value is the identity, for XLA leaves it out then.
"""

from __future__ import annotations


def _reduce(opcode: str, element: str, dims: str, axes: str, result: str, init: str) -> str:
    return f"""
HloModule m
f {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT r = {element}[] {opcode}(a, b) }}
ENTRY e {{
  x = {element}[{dims}] parameter(0)
  i = {element}[] constant({init})
  ROOT r = {element}[{result}] reduce(x, i), dimensions={{{axes}}}, to_apply=f
}}
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
  x = f32[5,7,3] parameter(0)
  n = s32[5,7,3] iota(), iota_dimension=1
  i = f32[] constant(-inf)
  z = s32[] constant(0)
  ROOT r = (f32[5,3], s32[5,3]) reduce(x, n, i, z), dimensions={1}, to_apply=f
}
"""

# Associative but not commutative: (a, b) after (c, d) as maps x -> a x + b, so that the order of elements shows.
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
  x = s32[3,11] parameter(0)
  y = s32[3,11] parameter(1)
  one = s32[] constant(1)
  zero = s32[] constant(0)
  ROOT r = (s32[3], s32[3]) reduce(x, y, one, zero), dimensions={1}, to_apply=f
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
  x = f32[4,5,3] parameter(0)
  i = f32[] parameter(1)
  ROOT r = f32[5] reduce(x, i), dimensions={0,2}, to_apply=f
}
"""

# One monoid for both arrays.
_TWO_PRODUCTS = """
HloModule m
f {
  a = s32[] parameter(0)
  b = u8[] parameter(1)
  c = s32[] parameter(2)
  d = u8[] parameter(3)
  p = s32[] multiply(c, a)
  q = u8[] multiply(b, d)
  ROOT t = (s32[], u8[]) tuple(p, q)
}
ENTRY e {
  x = s32[4,5,3] parameter(0)
  y = u8[4,5,3] parameter(1)
  i = s32[] constant(-3)
  j = u8[] parameter(2)
  ROOT r = (s32[5], u8[5]) reduce(x, y, i, j), dimensions={0,2}, to_apply=f
}
"""

SAMPLES: dict[str, list[str]] = {
    "reduce": [
        _reduce("add", "f32", "4,5,3", "1", "4,3", "0"),
        _reduce("add", "f32", "4,5,3", "0,2", "5", "2.5"),
        _reduce("add", "f32", "4,5,3", "2,0,1", "", "0"),
        _reduce("add", "f32", "4,5", "", "4,5", "0"),
        _reduce("add", "f32", "4,0", "1", "4", "1"),
        _reduce("add", "bf16", "4,300", "1", "4", "0"),
        _reduce("add", "f16", "4,7", "1", "4", "0"),
        _reduce("add", "s8", "4,9", "1", "4", "3"),
        _reduce("add", "c64", "4,5", "0", "5", "(0, 0)"),
        _reduce("multiply", "f64", "4,5", "0", "5", "1"),
        _reduce("multiply", "s32", "4,5", "1", "4", "1"),
        _reduce("maximum", "f32", "4,5", "1", "4", "-inf"),
        _reduce("maximum", "s32", "4,5", "1", "4", "-2147483648"),
        _reduce("maximum", "c64", "4,5", "1", "4", "(-9, 0)"),
        _reduce("minimum", "u8", "4,5", "0", "5", "255"),
        _reduce("minimum", "f32", "4,5", "0", "5", "0.1"),
        _reduce("and", "pred", "4,5", "1", "4", "true"),
        _reduce("or", "pred", "4,5", "1", "4", "false"),
        _reduce("xor", "u32", "4,5", "1", "4", "0"),
        _ARGMAX,
        _AFFINE,
        _GREATEST_SIZE,
        _TWO_PRODUCTS,
    ]
}
