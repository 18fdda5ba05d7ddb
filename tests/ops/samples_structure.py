"""Samples of parameters, constants, tuples, barriers and tokens."""

from __future__ import annotations

_ECHO = """
HloModule m
ENTRY e {
  a = f32[2,3] parameter(0)
  b = (s32[4], (bf16[], pred[2])) parameter(1)
  ROOT r = (f32[2,3], (s32[4], (bf16[], pred[2]))) tuple(a, b)
}
"""

SAMPLES: dict[str, list[str]] = {
    "parameter": [_ECHO],
    "constant": [
        "HloModule m ENTRY e { ROOT c = f32[2,3] constant({{1, -2.5, inf}, {-0.0, 1e-20, nan}}) }",
        """
HloModule m
ENTRY e {
  a = s8[3] constant({-128, 0, 127})
  b = pred[2,2] constant({{1, 0}, {0, 1}})
  c = c64[2] constant({(1, -2), (0.5, 0)})
  d = bf16[] constant(3.14)
  f = u64[0,2] constant({})
  ROOT r = (s8[3], pred[2,2], c64[2], bf16[], u64[0,2]) tuple(a, b, c, d, f)
}
""",
    ],
    "tuple": [
        _ECHO,
        "HloModule m ENTRY e { a = f32[2] parameter(0) n = () tuple() ROOT r = (f32[2], f32[2], ()) tuple(a, a, n) }",
    ],
    "get-tuple-element": [
        """
HloModule m
ENTRY e {
  p = (s32[4], (f32[2], pred[3])) parameter(0)
  q = (f32[2], pred[3]) get-tuple-element(p), index=1
  ROOT r = pred[3] get-tuple-element(q), index=1
}
"""
    ],
    "opt-barrier": [
        """
HloModule m
ENTRY e {
  a = f32[2,3] parameter(0)
  b = s32[4] parameter(1)
  t = (f32[2,3], s32[4]) tuple(a, b)
  ROOT r = (f32[2,3], s32[4]) opt-barrier(t)
}
""",
        "HloModule m ENTRY e { a = f32[2,3] parameter(0) ROOT r = f32[2,3] opt-barrier(a) }",
    ],
    "after-all": [
        """
HloModule m
ENTRY e {
  a = f32[2] parameter(0)
  s = token[] after-all()
  t = token[] after-all(s, s)
  ROOT r = f32[2] add-dependency(a, t)
}
"""
    ],
    "add-dependency": [
        """
HloModule m
ENTRY e {
  a = f32[2,3] parameter(0)
  t = token[] after-all()
  b = f32[2,3] add-dependency(a, t)
  ROOT r = f32[2,3] negate(b)
}
"""
    ],
    "partition-id": ["HloModule m ENTRY e { ROOT r = u32[] partition-id() }"],
    "replica-id": ["HloModule m ENTRY e { ROOT r = u32[] replica-id() }"],
}
