"""What a loop adds among zeros is added in place, to the same bits, unless anything could see the difference."""

from __future__ import annotations

from collections import Counter

import hloom
import pytest
from support.rewrites import differences, rewritten

PASS = "accumulate-in-place"
PROGRAM = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
half { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT r = bf16[] add(a, b) }
whole { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT r = s32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
body {
  s = (s32[], f32[4,3,5], f32[3,5], s32[7], f32[2,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[4,3,5] get-tuple-element(s), index=1
  v = f32[3,5] get-tuple-element(s), index=2
  k = s32[7] get-tuple-element(s), index=3
  q = f32[2,5] get-tuple-element(s), index=4
  one = s32[] constant(1)
  n0 = s32[] constant(0)
  zero = f32[] constant(0)
  zeros = f32[4,3,5] broadcast(zero), dimensions={}
  j = s32[] add(i, one)
  n = f32[] convert(j)
  many = f32[3,5] broadcast(n), dimensions={}
  x = f32[3,5] multiply(v, many)
  x1 = f32[1,3,5] reshape(x)
BODY
  ROOT next = (s32[], f32[4,3,5], f32[3,5], s32[7], f32[2,5]) tuple(j, NEXT, v, INTEGERS, q)
}
condition {
  s = (s32[], f32[4,3,5], f32[3,5], s32[7], f32[2,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(6)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY e {
  n = s32[] constant(-1)
  v = f32[3,5] parameter(0)
  k = s32[7] parameter(1)
  q = f32[2,5] parameter(2)
  p = f32[4,3,5] parameter(3)
  zero = f32[] constant(START)
  zeros = f32[4,3,5] broadcast(zero), dimensions={}
  begin = (s32[], f32[4,3,5], f32[3,5], s32[7], f32[2,5]) tuple(n, BEGIN, v, k, q)
  end = (s32[], f32[4,3,5], f32[3,5], s32[7], f32[2,5]) while(begin), condition=condition, body=body
  r = f32[4,3,5] get-tuple-element(end), index=1
  w = s32[7] get-tuple-element(end), index=3
  ROOT t = (f32[4,3,5], s32[7]) tuple(r, w)
}
"""
SLICE = "  z = f32[4,3,5] dynamic-update-slice(zeros, x1, i, n0, n0)\n"
ADD = "  b = f32[4,3,5] add(a, z)"
WINDOW = "update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def program(body: str, next_: str = "b", integers: str = "k", start: str = "0", begin: str = "zeros") -> str:
    text = PROGRAM.replace("BODY", body).replace("NEXT", next_).replace("INTEGERS", integers)
    return text.replace("START", start).replace("BEGIN", begin)


def scatter(indices: str = "1", more: str = "", by: str = "sum", window: str = WINDOW) -> str:
    """A scatter of `x1` among zeros, at row i."""
    return (f"  at = s32[{indices}] reshape(i)\n"
            f"  z = f32[4,3,5] scatter(zeros, at, x1), {window}{more}, to_apply={by}\n")  # fmt: skip


TRANSPOSED = """  none = f32[3,5,4] broadcast(zero), dimensions={}
  y = f32[5,3,1] transpose(x1), dimensions={2,1,0}
  y2 = f32[3,5,1] transpose(y), dimensions={1,0,2}
  u = f32[3,5,4] dynamic-update-slice(none, y2, n0, n0, i)
  ut = f32[5,3,4] transpose(u), dimensions={1,0,2}
  z = f32[4,3,5] transpose(ut), dimensions={2,1,0}
"""
# Windows of [3,2] at computed rows and columns, whose array is transposed twice on its way.
WINDOWS = """  none = f32[5,4,3] broadcast(zero), dimensions={}
  two = s32[] constant(2)
  c = s32[] remainder(j, two)
  row = s32[1] reshape(i)
  column = s32[1] reshape(c)
  at = s32[2] concatenate(row, column), dimensions={0}
  y = f32[3,2] slice(x), slice={[0:3], [1:3]}
  yt = f32[2,3] transpose(y), dimensions={1,0}
  w = f32[5,4,3] scatter(none, at, yt), update_window_dims={0,1}, inserted_window_dims={1}, \
scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=sum
  wt = f32[4,5,3] transpose(w), dimensions={1,0,2}
  z = f32[4,3,5] transpose(wt), dimensions={0,2,1}
"""
BATCHES = """  none = f32[3,4,5] broadcast(zero), dimensions={}
  e = s32[3,1] broadcast(i), dimensions={}
  u = f32[3,4,5] scatter(none, e, x), update_window_dims={1}, inserted_window_dims={1}, \
scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1, \
unique_indices=true, to_apply=sum
  z = f32[4,3,5] transpose(u), dimensions={1,0,2}
"""
NARROW = """  h = bf16[1,3,5] convert(x1)
  hz = bf16[] constant(0)
  none = bf16[4,3,5] broadcast(hz), dimensions={}
"""
BY_SLICE = "  u = bf16[4,3,5] dynamic-update-slice(none, h, i, n0, n0)\n  z = f32[4,3,5] convert(u)\n"
BY_SCATTER = f"  at = s32[1] reshape(i)\n  u = bf16[4,3,5] scatter(none, at, h), {WINDOW}, to_apply=half\n" \
             "  z = f32[4,3,5] convert(u)\n"  # fmt: skip
TWICE = f"{SLICE}  d = f32[4,3,5] add(a, z)\n{scatter().replace('z =', 'z2 =')}  b = f32[4,3,5] add(z2, d)"
FIRST = "  r = f32[1,3,5] broadcast(zero), dimensions={}\n" \
        "  a2 = f32[4,3,5] dynamic-update-slice(a, r, j, n0, n0)\n"  # fmt: skip
INTEGERS = """  nothing = s32[7] broadcast(n0), dimensions={}
  e = s32[2] iota(), iota_dimension=0
  l = s32[7] dynamic-update-slice(nothing, e, j)
  m = s32[7] add(l, k)
"""


@pytest.mark.parametrize(("text", "kind", "count"), [
    (program(SLICE + ADD), "dynamic-update-slice", 1), (program(scatter() + ADD), "scatter", 1),
    (program(scatter() + ADD.replace("a, z", "z, a")), "scatter", 1),
    (program(TRANSPOSED + ADD), "dynamic-update-slice", 1), (program(WINDOWS + ADD), "scatter", 1),
    (program(BATCHES + ADD), "scatter", 1), (program(NARROW + BY_SLICE + ADD), "dynamic-update-slice", 1),
    (program(NARROW + BY_SCATTER + ADD), "scatter", 1), (program(TWICE), "dynamic-update-slice", 1),
    (program(FIRST + SLICE + ADD.replace("a, z", "a2, z")), "dynamic-update-slice", 2),
    (program(SLICE + ADD, start="3"), "dynamic-update-slice", 1),
], ids=["slice", "scatter", "other way", "transposed", "windows", "batches", "converted", "converted scatter", "twice",
        "cleared first", "from three"])  # fmt: skip
def test_parts_are_added_in_place(text: str, kind: str, count: int) -> None:
    module, remarks = rewritten(text, PASS)
    found = Counter(i.opcode for c in module for i in c)
    assert found[kind] == count
    whole = [i for c in module for i in c if i.shape.is_array and i.shape.num_elements == 60]
    assert not {"transpose", "add", "convert"} & {i.opcode for i in whole}
    assert any("in place, not 240 bytes" in r for r in remarks)
    assert differences(text, module, exact=True) == ""


def test_integers_need_no_start() -> None:
    text = program(INTEGERS, next_="a", integers="m")
    module, remarks = rewritten(text, PASS)
    assert remarks == ["add m: adds 8 bytes in place, not 28 bytes"]
    assert differences(text, module, exact=True) == ""


OTHERS = """  c1 = f32[] constant(1)
  ones = f32[4,3,5] broadcast(c1), dimensions={}
  z = f32[4,3,5] dynamic-update-slice(ones, x1, i, n0, n0)
"""
PAIR = f"""  at = s32[2] broadcast(i), dimensions={{}}
  pair = f32[2,3,5] broadcast(x), dimensions={{1,2}}
  z = f32[4,3,5] scatter(zeros, at, pair), {WINDOW}, to_apply=sum
"""
WRITTEN = "  a2 = f32[4,3,5] dynamic-update-slice(a, x1, j, n0, n0)\n"


@pytest.mark.parametrize("text", [
    program(SLICE + ADD, start="-0"),  # outside of the part -0.0 + 0.0 is 0.0
    program(SLICE + ADD, begin="p"),  # which may hold -0.0
    program(SLICE + ADD + "\n  o = f32[4,3,5] multiply(a, a)\n  b2 = f32[4,3,5] maximum(b, o)", "b2"),
    program(SLICE + ADD + "\n  b2 = f32[4,3,5] negate(b)", "b2"),
    program(SLICE + ADD.replace("a, z", "o, z").replace("  b", "  o = f32[4,3,5] negate(a)\n  b")),
    program(OTHERS + ADD),
    program(SLICE + "  o = f32[4,3,5] negate(z)\n  y = f32[4,3,5] add(a, z)\n  b = f32[4,3,5] add(y, o)"),
    program(scatter(by="most") + ADD),
    program(WRITTEN + SLICE + ADD.replace("a, z", "a2, z")),  # may write -0.0
    program(PAIR + ADD),
], ids=["-0.0", "parameter", "read elsewhere", "negated", "negated before", "ones", "zeros read elsewhere", "maximum",
        "written", "two updates of an element"])  # fmt: skip
def test_others_stay(text: str) -> None:
    module, remarks = rewritten(text, PASS)
    assert remarks == []
    assert module.to_text() == hloom.parse(text).to_text()
