"""Samples of call, while, conditional, fusion and map."""

from __future__ import annotations

_CALL = """
HloModule m
f { a = f32[3] parameter(0) b = f32[3] parameter(1) d = f32[3] subtract(a, b) ROOT t = (f32[3], f32[3]) tuple(d, a) }
ENTRY e {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  ROOT r = (f32[3], f32[3]) call(y, x), to_apply=f
}
"""

_WHILE = """
HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  y = f32[4] multiply(x, x)
  z = f32[4] add(y, x)
  ROOT t = (s32[], f32[4]) tuple(m, z)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(3)
  ROOT c = pred[] compare(n, five), direction=LT
}
ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant(START)
  s = (s32[], f32[4]) tuple(zero, x)
  ROOT r = (s32[], f32[4]) while(s), condition=condition, body=body
}
"""

_BRANCHES = """
HloModule m
f { a = f32[3] parameter(0) ROOT n = f32[3] negate(a) }
g { a = (f32[3], f32[3]) parameter(0) b = f32[3] get-tuple-element(a), index=0 c = f32[3] get-tuple-element(a), index=1
    ROOT s = f32[3] add(b, c) }
h { a = () parameter(0) ROOT z = f32[3] constant({1, 2, 3}) }
"""

_BY_PRED = (
    _BRANCHES
    + """
ENTRY e {
  p = pred[] parameter(0)
  x = f32[3] parameter(1)
  y = (f32[3], f32[3]) parameter(2)
  ROOT r = f32[3] conditional(p, x, y), true_computation=f, false_computation=g
}
"""
)

_BY_INDEX = (
    _BRANCHES
    + """
ENTRY e {
  i = s32[] constant(INDEX)
  x = f32[3] parameter(0)
  y = (f32[3], f32[3]) parameter(1)
  z = () tuple()
  ROOT r = f32[3] conditional(i, x, y, z), branch_computations={f, g, h}
}
"""
)

_FUSION = """
HloModule m
f { a = f32[3,4] parameter(0) b = f32[3,4] exponential(a) ROOT c = f32[3,4] negate(b) }
ENTRY e { x = f32[3,4] parameter(0) ROOT r = f32[3,4] fusion(x), kind=kLoop, calls=f }
"""

_MAP = """
HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] constant(2)
  d = f32[] multiply(a, c)
  ROOT r = f32[] add(d, b)
}
ENTRY e {
  x = f32[3,4] parameter(0)
  y = f32[3,4] parameter(1)
  ROOT r = f32[3,4] map(x, y), dimensions={0,1}, to_apply=f
}
"""

# Neither a constant root nor a reshape inside can be computed on whole arrays as they are.
_MAP_ODD = """
HloModule m
f { a = f32[] parameter(0) b = f32[1] reshape(a) c = f32[1] negate(b) ROOT r = f32[] reshape(c) }
g { a = f32[] parameter(0) ROOT r = s32[] constant(7) }
ENTRY e {
  x = f32[3,2] parameter(0)
  y = f32[3,2] map(x), dimensions={0,1}, to_apply=f
  z = s32[3,2] map(x), dimensions={0,1}, to_apply=g
  ROOT r = (f32[3,2], s32[3,2]) tuple(y, z)
}
"""

SAMPLES: dict[str, list[str]] = {
    "call": [_CALL],
    "while": [_WHILE.replace("START", "0"), _WHILE.replace("START", "5")],
    "conditional": [_BY_PRED, *(_BY_INDEX.replace("INDEX", str(i)) for i in (0, 1, 2, 3, -1))],
    "fusion": [_FUSION],
    "map": [_MAP, _MAP_ODD],
}
