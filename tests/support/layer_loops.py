"""Loops over layers with divided weights, as programs of four devices: a forward and a backward one, by hand.

The forward loop gathers rows of stacked weights at its counter. The backward loop goes through them from the last one,
reduces a gradient per layer, writes it to the layer's place, and adds up another one.
"""

from __future__ import annotations

import re

GATHER = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
STATE = "(s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8])"

HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }"""


def elements(state: str, *names: str) -> str:
    """The lines that take the elements of a tuple `s` of arrays apart."""
    types = re.findall(r"\w+\[[\d,]*\]", state)
    parts = enumerate(zip(names, types, strict=True))
    return "\n  ".join(f"{name} = {type} get-tuple-element(s), index={n}" for n, (name, type) in parts)


def layers(
    trips: str = "i, limit), direction=LT", start: int = 0, limit: int = 5, step: int = 1, place: str = "i",
    gathered: str = "slice_", after: str = "", next_: str = "", condition: str = "", into: str = "c",
) -> str:
    """The text. `trips` are the operands and direction of the condition's comparison, `place` is the index of a layer
    in the body, `gathered` what is gathered there, `into` the array that is written into; `after`, `next_` and
    `condition` are further lines of the body, what it returns for the activations, and further lines of the condition.
    """
    return f"""{HEAD}
body {{
  s = {STATE} parameter(0)
  {elements(STATE, "i", "x", "w", "c", "sum")}
  step = s32[] constant({step})
  j = s32[] add(i, step)
  zero = s32[] constant(0)
  four = s32[] constant(4)
  back = s32[] subtract(four, i)
  device = u32[] partition-id()
  on = s32[] convert(device)
  layer = f32[1,2,8] dynamic-slice(w, {place}, zero, zero), dynamic_slice_sizes={{1,2,8}}
  slice_ = f32[2,8] reshape(layer)
  rows = f32[2,8] slice(x), slice={{[0:2],[0:8]}}
  g = f32[8,8] all-gather({gathered}), channel_id=1, dimensions={{0}}, {GATHER}
  p = f32[3,8] dot(x, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[3,8] tanh(p)
  d = f32[8,8] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  r = f32[2,8] reduce-scatter(d), channel_id=2, dimensions={{0}}, to_apply=add, {GATHER}
  part = f32[1,2,8] reshape(r)
  new = f32[5,2,8] dynamic-update-slice({into}, part, {place}, zero, zero)
  e = f32[8,8] negate(d)
  q = f32[2,8] reduce-scatter(e), channel_id=3, dimensions={{0}}, to_apply=add, {GATHER}
  total = f32[2,8] add(sum, q)
{after}
  ROOT t = {STATE} tuple(j, {next_ or 'y'}, w, new, total)
}}
condition {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({limit})
  {'' if condition else 'ROOT '}enough = pred[] compare({trips}
{condition}
}}
ENTRY e {{
  start = s32[] constant({start})
  x = f32[3,8] parameter(0)
  w = f32[5,2,8] parameter(1)
  c = f32[5,2,8] parameter(2)
  sum = f32[2,8] parameter(3)
  begin = {STATE} tuple(start, x, w, c, sum)
  end = {STATE} while(begin), condition=condition, body=body
  y = f32[3,8] get-tuple-element(end), index=1
  new = f32[5,2,8] get-tuple-element(end), index=3
  total = f32[2,8] get-tuple-element(end), index=4
  i = s32[] get-tuple-element(end), index=0
  ROOT t = (f32[3,8], f32[5,2,8], f32[2,8], s32[]) tuple(y, new, total, i)
}}
"""


FORMS = {
    "forwards": layers(),
    "backwards": layers(place="back"),
    "not equal": layers("i, limit), direction=NE"),
    "down": layers("i, limit), direction=GE", start=4, limit=0, step=-1),
    "flipped": layers("limit, i), direction=GT"),
    "twice": layers(limit=2, place="back"),
    "every second": layers(limit=5, step=2),
    "from the third": layers(start=2),
}
