"""Stacks that an inner loop makes are added to the sums of the outer one entry by entry, to the same bits, unless
anything could see the difference.
"""

from __future__ import annotations

import hloom
import pytest
from support.rewrites import differences, rewritten

PASS = "accumulate-stacks"
PROGRAM = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
layer {
  s = (s32[], f32[4,3,5], f32[3,5], f32[1,4,15]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = f32[4,3,5] get-tuple-element(s), index=1
  v = f32[3,5] get-tuple-element(s), index=2
  w = f32[1,4,15] get-tuple-element(s), index=3
  one = s32[] constant(1)
  n0 = s32[] constant(0)
  last = s32[] constant(3)
  down = s32[] subtract(last, i)
  again = s32[] remainder(i, last)
  j = s32[] add(i, one)
  n = f32[] convert(j)
  many = f32[3,5] broadcast(n), dimensions={}
  x = f32[3,5] multiply(v, many)
  x1 = f32[1,3,5] reshape(x)
  x2 = f32[1,1,15] reshape(x)
  t2 = f32[4,3,5] dynamic-update-slice(t, x1, AT, n0, n0)
  w2 = f32[1,4,15] dynamic-update-slice(w, x2, n0, AT, n0)
MORE
  ROOT r = (s32[], f32[4,3,5], f32[3,5], f32[1,4,15]) tuple(j, NEXT, v, w2)
}
more-layers {
  s = (s32[], f32[4,3,5], f32[3,5], f32[1,4,15]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(LAYERS)
  ROOT c = pred[] compare(i, limit), direction=LT
}
body {
  s = (s32[], f32[1,4,3,5], f32[3,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[1,4,3,5] get-tuple-element(s), index=1
  v = f32[3,5] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n0 = s32[] constant(FROM)
  zero = f32[] constant(ZERO)
  zeros = f32[4,3,5] broadcast(zero), dimensions={}
  others = f32[1,4,15] broadcast(zero), dimensions={}
  j = s32[] add(i, one)
  begin = (s32[], f32[4,3,5], f32[3,5], f32[1,4,15]) tuple(n0, zeros, v, others)
  layers = (s32[], f32[4,3,5], f32[3,5], f32[1,4,15]) while(begin), condition=more-layers, body=layer
  z = f32[4,3,5] get-tuple-element(layers), index=1
  z1 = f32[4,1,3,5] reshape(z)
  z2 = f32[1,4,3,5] transpose(z1), dimensions={1,0,2,3}
SUM
  ROOT r = (s32[], f32[1,4,3,5], f32[3,5]) tuple(j, b, v)
}
condition {
  s = (s32[], f32[1,4,3,5], f32[3,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(6)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY e {
  n = s32[] constant(0)
  v = f32[3,5] parameter(0)
  zero = f32[] constant(START)
  zeros = f32[1,4,3,5] broadcast(zero), dimensions={}
  begin = (s32[], f32[1,4,3,5], f32[3,5]) tuple(n, zeros, v)
  end = (s32[], f32[1,4,3,5], f32[3,5]) while(begin), condition=condition, body=body
  ROOT r = f32[1,4,3,5] get-tuple-element(end), index=1
}
"""
SUM = "  b = f32[1,4,3,5] add(a, z2)"


def program(at: str = "i", more: str = "", next_: str = "t2", layers: int = 4, sum_: str = SUM, **others: str) -> str:
    text = PROGRAM.replace("AT", at).replace("MORE", more).replace("NEXT", next_).replace("LAYERS", str(layers))
    text = text.replace("SUM", sum_)
    for name, value in ({"FROM": "0", "ZERO": "0", "START": "0"} | others).items():
        text = text.replace(name, value)
    return text


TWICE = f"{SUM.replace('b =', 'd =')}\n{SUM.replace('add(a, z2)', 'add(d, d2)')}"
OTHER = """  y = f32[1,4,3,5] broadcast(zero), dimensions={}
  y1 = f32[1,1,3,5] reshape(v)
  d2 = f32[1,4,3,5] dynamic-update-slice(y, y1, n0, n0, n0, n0)
"""


@pytest.mark.parametrize("text", [
    program(), program("down"), program(sum_=SUM.replace("a, z2", "z2, a")), program(layers=2), program(layers=0),
    program(FROM="2"), program(START="7"), program(sum_=OTHER + TWICE), program(ZERO="-0"),
], ids=["up", "down", "other way", "fewer layers", "none", "from the third", "from seven", "with another",
        "on -0.0"])  # fmt: skip
def test_entries_are_added_in_place(text: str) -> None:
    module, remarks = rewritten(text, PASS)
    assert remarks == [next(r for r in remarks if "layers adds entries, not 240 bytes after it" in r)]
    assert "z2" not in {i.name for c in module for i in c}
    assert differences(text, module, exact=True) == ""


READ = "  b0 = f32[1,4,3,5] add(a, z2)\n  o = f32[1,4,3,5] negate(z2)\n  b = f32[1,4,3,5] maximum(b0, o)"
PART = f"  q = f32[1,4,3,5] slice(z2), slice={{[0:1], [0:4], [0:3], [0:5]}}\n{SUM.replace('z2', 'q')}"
DEPENDENT = """  k = f32[1,4,15] get-tuple-element(layers), index=3
  k1 = f32[1,4,3,5] reshape(k)
  d = f32[1,4,3,5] add(a, k1)
  b = f32[1,4,3,5] add(d, z2)
"""


@pytest.mark.parametrize("text", [
    program("again"),  # writes the first entry twice
    program("n0"),
    program(layers=5),  # the last one is written where the one before it was
    program(FROM="-1"),
    program(ZERO="1"),
    program(START="-0"),
    program(more="  e = f32[4,3,5] negate(t2)", next_="e"),
    program(more="  e = f32[4,3,5] maximum(t2, t)", next_="e"),
    program(sum_=READ), program(sum_=PART), program(sum_=SUM.replace("add", "subtract")),
    program(sum_=DEPENDENT),  # what it is added to comes from the same loop
], ids=["again", "one entry", "beyond", "before", "ones", "-0.0", "negated", "read", "read after", "sliced",
        "subtracted", "dependent"])  # fmt: skip
def test_others_stay(text: str) -> None:
    module, remarks = rewritten(text, PASS)
    assert remarks == []
    assert module.to_text() == hloom.parse(text).to_text()
