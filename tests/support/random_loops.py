"""Random loops with collectives, as programs of four devices.

The state has a counter, two activations that trips compute from each other and from a layer of stacked weights, a stack
that they write into, and a sum. Ops keep the shape of the activations.
"""

from __future__ import annotations

from collections.abc import Callable

from support.layer_loops import GATHER, HEAD, elements

STATE = "(s32[], f32[8,8], f32[8,8], f32[5,8,8], f32[5,8,8], f32[8,8])"
Choose = Callable[[int, int], int]  # an integer between two, both included


def random_loop(choose: Choose, ops: int = 12) -> str:
    """Returns the text of a program."""
    lines, values = list[str](), ["x", "y"]
    for n in range(ops):
        a, b = (values[choose(0, len(values) - 1)] for _ in range(2))
        new = f"v{n}"
        lines += _op(choose, new, a, b, n + 1)
        values.append(new)
    following = [values[choose(2, len(values) - 1)] for _ in range(4)]
    trips, step = choose(2, 5), choose(1, 2)
    body = "\n  ".join(lines)
    return f"""{HEAD}
most {{ v0 = f32[] parameter(0)  n0 = s32[] parameter(1)  v1 = f32[] parameter(2)  n1 = s32[] parameter(3)
  first = pred[] compare(v0, v1), direction=GE  v = f32[] select(first, v0, v1)  n = s32[] select(first, n0, n1)
  ROOT t = (f32[], s32[]) tuple(v, n) }}
body {{
  s = {STATE} parameter(0)
  {elements(STATE, "i", "x", "y", "w", "c", "sum")}
  step = s32[] constant({step})
  j = s32[] add(i, step)
  zero = s32[] constant(0)
  low = f32[] constant(-inf)
  numbers = s32[8,8] iota(), iota_dimension=1
  {body}
  part = f32[1,8,8] reshape({following[2]})
  new = f32[5,8,8] dynamic-update-slice(c, part, i, zero, zero)
  total = f32[8,8] add(sum, {following[3]})
  ROOT t = {STATE} tuple(j, {following[0]}, {following[1]}, w, new, total)
}}
condition {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({trips * step})
  ROOT enough = pred[] compare(i, limit), direction=LT
}}
ENTRY e {{
  start = s32[] constant(0)
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  w = f32[5,8,8] parameter(2)
  c = f32[5,8,8] parameter(3)
  sum = f32[8,8] parameter(4)
  begin = {STATE} tuple(start, x, y, w, c, sum)
  end = {STATE} while(begin), condition=condition, body=body
  a = f32[8,8] get-tuple-element(end), index=1
  b = f32[8,8] get-tuple-element(end), index=2
  new = f32[5,8,8] get-tuple-element(end), index=4
  total = f32[8,8] get-tuple-element(end), index=5
  ROOT t = (f32[8,8], f32[8,8], f32[5,8,8], f32[8,8]) tuple(a, b, new, total)
}}
"""


def _op(choose: Choose, new: str, a: str, b: str, channel: int) -> list[str]:
    """Returns the lines of an op, or of some, that make a value of two."""
    made = f"  {new} = f32[8,8]"
    product = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    send = f"channel_id={channel}, {GATHER}"
    ring = "{{0,1},{1,2},{2,3},{3,0}}"
    forms = (
        [f"{made} tanh({a})"],
        [f"{made} subtract({a}, {b})"],
        [f"  {new}p = f32[8,8] dot({a}, {b}), {product}", f"{made} tanh({new}p)"],
        [f"  {new}l = f32[1,8,8] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={{1,8,8}}",
         f"  {new}m = f32[8,8] reshape({new}l)", f"  {new}p = f32[8,8] dot({a}, {new}m), {product}",
         f"{made} tanh({new}p)"],
        [f"{made} collective-permute({a}), channel_id={channel}, source_target_pairs={ring}"],
        [f"{made} all-to-all({a}), dimensions={{0}}, channel_id={channel}, replica_groups={{{{0,1,2,3}}}}"],
        [f"  {new}s = f32[8,8] all-reduce({a}), to_apply=add, {send}", f"{made} tanh({new}s)"],
        [f"  {new}r = f32[2,8] slice({a}), slice={{[2:4],[0:8]}}",
         f"{made} all-gather({new}r), dimensions={{0}}, {send}"],
        [f"  {new}s = (f32[8,8], f32[8,8]) all-reduce({a}, {b}), to_apply=add, {send}",
         f"  {new}a = f32[8,8] get-tuple-element({new}s), index=0",
         f"  {new}b = f32[8,8] get-tuple-element({new}s), index=1", f"{made} subtract({new}a, {new}b)"],
        [f"  {new}t = (f32[8,8], f32[8,8]) tuple({a}, {b})",
         f"  {new}o = (f32[8,8], f32[8,8]) opt-barrier({new}t)",
         f"{made} get-tuple-element({new}o), index=0"],
        [f"  {new}n = (f32[8], s32[8]) reduce({a}, numbers, low, zero), dimensions={{1}}, to_apply=most",
         f"  {new}m = f32[8] get-tuple-element({new}n), index=0", f"{made} broadcast({new}m), dimensions={{0}}"],
    )  # fmt: skip
    return forms[choose(0, len(forms) - 1)]
