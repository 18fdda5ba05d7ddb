"""Samples of sort: up, down, by total order, with a second array, by an order that numbers do not show."""

from __future__ import annotations


def _sort(element: str, dims: str, axis: int, direction: str, more: str = "") -> str:
    return f"""
HloModule m
f {{
  a = {element}[] parameter(0)
  b = {element}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}{more}
}}
ENTRY e {{ x = {element}[{dims}] parameter(0) ROOT r = {element}[{dims}] sort(x), dimensions={{{axis}}}, to_apply=f }}
"""


_WITH_PLACES = """
HloModule m
f {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
ENTRY e {
  x = s8[4,13,2] parameter(0)
  n = s32[4,13,2] iota(), iota_dimension=1
  ROOT r = (s8[4,13,2], s32[4,13,2]) sort(x, n), dimensions={1}, is_stable=true, to_apply=f
}
"""

# By size without sign, equal ones by the second array downwards.
_BY_SIZE = """
HloModule m
f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  p = s32[] abs(a)
  q = s32[] abs(b)
  less = pred[] compare(p, q), direction=LT
  same = pred[] compare(p, q), direction=EQ
  more = pred[] compare(c, d), direction=GT
  tie = pred[] and(same, more)
  ROOT r = pred[] or(less, tie)
}
ENTRY e {
  x = s32[3,21] parameter(0)
  y = f32[3,21] parameter(1)
  ROOT r = (s32[3,21], f32[3,21]) sort(x, y), dimensions={1}, is_stable=true, to_apply=f
}
"""

_CANONICAL = """
  zero = f32[] constant(0)
  none = f32[] constant(nan)
  an = pred[] compare(a, a), direction=NE
  az = pred[] compare(a, zero), direction=EQ
  as = f32[] select(az, zero, a)
  p = f32[] select(an, none, as)
  bn = pred[] compare(b, b), direction=NE
  bz = pred[] compare(b, zero), direction=EQ
  bs = f32[] select(bz, zero, b)
  q = f32[] select(bn, none, bs)
  less = pred[] compare(p, q), direction=LT, type=TOTALORDER
  same = pred[] compare(p, q), direction=EQ, type=TOTALORDER
"""

# The order of floats as signed integers, as XLA writes it.
_BITS = """
  zero = s32[] constant(0)
  top = s32[] constant(2147483647)
  ab = s32[] bitcast-convert(a)
  an = pred[] compare(ab, zero), direction=LT
  am = s32[] subtract(top, ab)
  p = s32[] select(an, am, ab)
  bb = s32[] bitcast-convert(b)
  bn = pred[] compare(bb, zero), direction=LT
  bm = s32[] subtract(top, bb)
  q = s32[] select(bn, bm, bb)
  less = pred[] compare(p, q), direction=GT
  same = pred[] compare(p, q), direction=EQ
"""

# No keys: the comparator looks at both elements together.
_ACROSS = """
  u = f32[] convert(c)
  v = f32[] convert(d)
  x = f32[] subtract(a, b)
  y = f32[] subtract(v, u)
  z = f32[] constant(0)
  less = pred[] compare(x, z), direction=LT
  same = pred[] compare(x, z), direction=EQ
"""


def _pair(body: str, tie: str, dims: str = "3,37") -> str:
    return f"""
HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  {body}
  next = pred[] compare(c, d), direction={tie}
  tied = pred[] and(same, next)
  ROOT r = pred[] or(less, tied)
}}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  y = s32[{dims}] parameter(1)
  ROOT r = (f32[{dims}], s32[{dims}]) sort(x, y), dimensions={{1}}, is_stable=true, to_apply=f
}}
"""


SAMPLES: dict[str, list[str]] = {
    "sort": [
        _sort("f32", "5,7", 1, "LT"),
        _sort("f32", "5,7", 0, "GT"),
        _sort("bf16", "9", 0, "LT"),
        _sort("u8", "3,40", 1, "LT"),
        _sort("pred", "3,6", 1, "GT"),
        _sort("s32", "3,0", 1, "LT"),
        "// inputs: special" + _sort("f32", "4,33", 1, "LT", ", type=TOTALORDER"),
        "// inputs: special" + _sort("f16", "4,33", 1, "GT", ", type=TOTALORDER"),
        _WITH_PLACES,
        _BY_SIZE,
        _BY_SIZE.replace("3,21", "3,22"),
        "// inputs: special" + _pair(_CANONICAL, "LT"),
        "// inputs: special" + _pair(_CANONICAL, "GT", "2,70"),
        "// inputs: special" + _pair(_BITS, "LT"),
        _pair(_ACROSS, "GT", "3,70"),
    ]
}
