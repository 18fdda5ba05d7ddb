"""Loops whose bodies do to their state whatever bodies can do, as text in parts."""

from __future__ import annotations

from support.layer_loops import elements

STATE = "(s32[], f32[4,6], f32[4,6], f32[5,4,6])"
HEAD = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a,b) }}
sum {{ a = f32[4,6] parameter(0) b = f32[4,6] parameter(1) ROOT r = f32[4,6] add(a,b) }}
counted {{
  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(TRIPS)
  ROOT c = pred[] compare(n, k), direction=LT
}}
small {{
  s = {STATE} parameter(0)
  x = f32[4,6] get-tuple-element(s), index=1
  zero = f32[] constant(0)
  t = f32[] reduce(x, zero), dimensions={{0,1}}, to_apply=add
  k = f32[] constant(100)
  ROOT c = pred[] compare(t, k), direction=LT
}}
body {{
  s = {STATE} parameter(0)
  {elements(STATE, "n", "x", "y", "o")}
  one = s32[] constant(1)
  zero = s32[] constant(0)
  m = s32[] add(n, one)
"""
ENTRY = f"""
}}
ENTRY e {{
  x = f32[4,6] parameter(0)
  y = f32[4,6] parameter(1)
  o = f32[5,4,6] parameter(2)
  zero = s32[] constant(0)
  s = {STATE} tuple(zero, FIRST, y, o)
  ROOT l = {STATE} while(s), condition=CONDITION, body=body
}}"""

UPDATE = """  row = f32[1,4,6] reshape(d)
  u = f32[5,4,6] dynamic-update-slice(o, row, n, zero, zero)
"""
BODIES = {
    "swapped": f"ROOT r = {STATE} tuple(m, y, x, o)",
    "unchanged": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, y, o)",
    "all unchanged but the number": f"ROOT r = {STATE} tuple(m, x, y, o)",
    "one result twice": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, d, o)",
    "old and new": f"d = f32[4,6] add(x, y)\n ROOT r = {STATE} tuple(m, d, x, o)",
    "turned": f"t = f32[4,6] reverse(x), dimensions={{0}}\n ROOT r = {STATE} tuple(m, t, y, o)",
    "a constant": f"k = f32[] constant(2)\n d = f32[4,6] broadcast(k), dimensions={{}}\n"
    f" ROOT r = {STATE} tuple(m, d, x, o)",
    "a product": f"t = f32[4,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n"
    f" h = f32[4,4] tanh(t)\n d = f32[4,6] dot(h, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
    f" ROOT r = {STATE} tuple(m, d, y, o)",
    "a slice written": f"d = f32[4,6] sine(x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)",
    "a slice written, the old array read later": f"d = f32[4,6] sine(x)\n{UPDATE}"
    f" q = f32[1,4,6] dynamic-slice(o, n, zero, zero), dynamic_slice_sizes={{1,4,6}}\n"
    f" p = f32[4,6] reshape(q)\n v = f32[4,6] add(p, d)\n ROOT r = {STATE} tuple(m, v, y, u)",
    "two slices written": f"d = f32[4,6] sine(x)\n{UPDATE} q = f32[1,4,6] reshape(y)\n"
    f" w = f32[5,4,6] dynamic-update-slice(u, q, m, zero, n)\n ROOT r = {STATE} tuple(m, d, y, w)",
    "a computation called twice": "c = f32[4,6] call(x, y), to_apply=sum\n d = f32[4,6] call(c, x), to_apply=sum\n"
    f"{UPDATE} ROOT r = {STATE} tuple(m, d, c, u)",
    "a slice read and written": f"q = f32[1,4,6] dynamic-slice(o, m, zero, zero), dynamic_slice_sizes={{1,4,6}}\n"
    f" p = f32[4,6] reshape(q)\n d = f32[4,6] add(p, x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)",
}
