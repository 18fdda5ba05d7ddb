"""All-reduces of what a loop accumulates run once, after it, unless anything could see the difference."""

from __future__ import annotations

import hloom
import pytest
from support.rewrites import collectives, differences, rewritten

PASS = "sink-all-reduces"
PROGRAM = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
half { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT r = bf16[] add(a, b) }
body {
  s = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[6,3] get-tuple-element(s), index=1
  v = f32[3,5] get-tuple-element(s), index=2
  w = f32[5,5,3] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  n = f32[] convert(j)
  many = f32[3,5] broadcast(n), dimensions={}
  x = f32[3,5] multiply(v, many)
BODY
  ROOT next = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) tuple(j, NEXT)
}
condition {
  s = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
CONDITION
}
ENTRY e {
  zero = s32[] constant(0)
  a = f32[6,3] parameter(0)
  v = f32[3,5] parameter(1)
  w = f32[5,5,3] parameter(2)
  nothing = f32[] constant(0)
  zeros = f32[6,3] broadcast(nothing), dimensions={}
  more = f32[5,5,3] broadcast(nothing), dimensions={}
  begin = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) tuple(zero, A, v, W)
  end = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) while(begin), condition=condition, body=body
  ra = f32[6,3] get-tuple-element(end), index=1
  rw = f32[5,5,3] get-tuple-element(end), index=3
  ROOT r = (f32[6,3], f32[5,5,3]) tuple(ra, rw)
}
"""
UP_TO_FIVE = "  limit = s32[] constant(5)\n  ROOT c = pred[] compare(i, limit), direction=LT"


def program(
    body: str, next_: str = "b, v, w", condition: str = UP_TO_FIVE, start: str = "a", stack: str = "more"
) -> str:
    text = PROGRAM.replace("BODY", body).replace("NEXT", next_).replace("CONDITION", condition)
    return text.replace("A, v, W", f"{start}, v, {stack}")


def reduce(name: str, of: str, shape: str, by: str = "add", groups: str = "{{0,1},{2,3}}") -> str:
    return (f"  {name} = {shape} all-reduce({of}), channel_id={sum(map(ord, name))}, replica_groups={groups}, "
            f"use_global_device_ids=true, to_apply={by}\n")  # fmt: skip


GRADIENT = """  t = f32[5,3] transpose(x), dimensions={1,0}
  nil = f32[] constant(0)
  g = f32[6,3] pad(t, nil), padding=0_1x0_0
"""
SUM = GRADIENT + reduce("r", "g", "f32[6,3]")
ADDED = SUM + "  b = f32[6,3] add(a, r)"
NEGATED = SUM + """  m = f32[6,3] negate(r)
  f = f32[6,3] broadcast(n), dimensions={}
  h = f32[6,3] multiply(f, m)
  b = f32[6,3] add(a, h)"""
# The gradient of what was broadcast along a dimension of size 1.
REDUCED = SUM + """  u = f32[6,1,3] reshape(r)
  d = f32[6,3] reduce(u, nil), dimensions={1}, to_apply=add
  b = f32[6,3] add(a, d)"""
OTHER_WAY = GRADIENT + "  h = f32[3,6] transpose(g), dimensions={1,0}\n" + reduce("r", "h", "f32[3,6]") + """
  y = f32[3,6] copy(r)
  z = f32[6,3] transpose(y), dimensions={1,0}
  b = f32[6,3] add(z, a)"""
NARROW = GRADIENT + "  h = bf16[6,3] convert(g)\n" + reduce("r", "h", "bf16[6,3]", "half") + """
  z = f32[6,3] convert(r)
  b = f32[6,3] add(z, a)"""
CHOSEN = SUM + """  c = f32[6,3] add(a, r)
  two = s32[] constant(2)
  ok = pred[] compare(i, two), direction=GT
  many_ok = pred[6,3] broadcast(ok), dimensions={}
  b = f32[6,3] select(many_ok, c, a)"""
STACKED = """  t = f32[5,3] transpose(x), dimensions={1,0}
""" + reduce("r", "t", "f32[5,3]") + """  u = f32[1,5,3] reshape(r)
  q = f32[5,5,3] dynamic-update-slice(w, u, INDEX, zero, zero)"""
INTO_PARTS = STACKED.replace("  q =", """  old = f32[1,5,3] dynamic-slice(w, INDEX, zero, zero),
    dynamic_slice_sizes={1,5,3}
  old2 = f32[5,3] reshape(old)
  new = f32[5,3] add(r, old2)
  back_in = f32[1,5,3] reshape(new)
  q =""").replace("(w, u,", "(w, back_in,").replace("  u = f32[1,5,3] reshape(r)\n", "")  # fmt: skip
INTO_ROWS = """  t = f32[5,3] transpose(x), dimensions={1,0}
""" + reduce("r", "t", "f32[5,3]") + """  at = s32[1] reshape(INDEX)
  q = f32[5,5,3] scatter(w, at, r), update_window_dims={0,1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add"""
FORWARDS = ("INDEX", "i")
BACKWARDS = ("INDEX", "back")
BACK = "  four = s32[] constant(4)\n  back = s32[] subtract(four, i)\n"


@pytest.mark.parametrize(
    "text",
    [
        program(ADDED), program(ADDED, start="zeros"), program(OTHER_WAY), program(NARROW), program(CHOSEN),
        program(NEGATED), program(REDUCED),
        program(INTO_PARTS.replace(*FORWARDS), "a, v, q", stack="w"),
        program(BACK + INTO_PARTS.replace(*BACKWARDS), "a, v, q"),
        program(BACK + INTO_PARTS.replace("INDEX", "zero"), "a, v, q", stack="w"),
        program(INTO_ROWS.replace(*FORWARDS), "a, v, q", stack="w"),
        program(INTO_ROWS.replace("INDEX", "zero"), "a, v, q"),
    ],
    ids=["added", "to zeros", "moved", "narrow", "chosen", "negated", "reduced", "into parts", "backwards",
         "into one part", "scattered", "scattered into one part"],
)  # fmt: skip
def test_runs_after_the_loop(text: str) -> None:
    module, remarks = rewritten(text, PASS + "{least-gain=0}")
    assert collectives(module) == {"all-reduce": 1}
    assert "runs after its loop" in remarks[0]
    assert differences(text, module, exact=True, whole=True) == ""
    assert "bf16" in text or differences(text, module) == "", "other sums of bf16 round otherwise"


@pytest.mark.parametrize("index", [FORWARDS, BACKWARDS], ids=["forwards", "backwards"])
def test_stacked_gradients_sink_where_starts_cost(index: tuple[str, str]) -> None:
    text = program(BACK + STACKED.replace(*index), "a, v, q")
    module, remarks = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce@body": 1}
    assert "stays in its loop" in remarks[0], "the bytes are the same"
    module, _ = rewritten(text, PASS, hloom.parse_machine("h100"))
    assert collectives(module) == {"all-reduce": 1}
    assert differences(text, module) == ""


def test_through_two_loops() -> None:
    """Micro-batches around layers: the sum leaves both loops."""
    inner = program(ADDED).replace("ENTRY e", "step").replace("a = f32[6,3] parameter(0)", (
        "S = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) parameter(0)\n  k = s32[] get-tuple-element(S), index=0\n"
        "  unit = s32[] constant(1)\n  k1 = s32[] add(k, unit)\n  a = f32[6,3] get-tuple-element(S), index=1"
    )).replace("v = f32[3,5] parameter(1)", "v = f32[3,5] get-tuple-element(S), index=2").replace(
        "w = f32[5,5,3] parameter(2)", "w = f32[5,5,3] get-tuple-element(S), index=3"
    ).replace("tuple(zero, a, v, more)", "tuple(zero, zeros, v, more)").replace(
        "ROOT r = (f32[6,3], f32[5,5,3]) tuple(ra, rw)",
        "sum = f32[6,3] add(a, ra)\n  ROOT r = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) tuple(k1, sum, v, w)",
    )  # fmt: skip
    text = inner + """
three { s = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  zero = s32[] constant(0)
  a = f32[6,3] parameter(0)
  v = f32[3,5] parameter(1)
  w = f32[5,5,3] parameter(2)
  begin = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) tuple(zero, a, v, w)
  end = (s32[], f32[6,3], f32[3,5], f32[5,5,3]) while(begin), condition=three, body=step
  ROOT ra = f32[6,3] get-tuple-element(end), index=1
}
"""
    module, _ = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce": 1}
    assert differences(text, module) == ""


READS = UP_TO_FIVE.replace("ROOT c", "c") + """
  a = f32[6,3] get-tuple-element(s), index=1
  nil = f32[] constant(0)
  most = f32[] constant(1e9)
  total = f32[] reduce(a, nil), dimensions={0,1}, to_apply=add
  small = pred[] compare(total, most), direction=LT
  ROOT both = pred[] and(c, small)"""
ON_THIS_DEVICE = "  p = u32[] partition-id()\n  d = s32[] convert(p)\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (program(ON_THIS_DEVICE + INTO_ROWS.replace("INDEX", "d"), "a, v, q"), "may differ between devices"),
        (program(INTO_ROWS.replace(*FORWARDS).replace("dim=0, to_apply=add", "dim=0, to_apply=most"), "a, v, q"),
         "scatter q lies between"),
        (program(ADDED, condition=READS), "the condition reads"),
        (program(ADDED + "\n  x2 = f32[5,3] slice(b), slice={[0:5],[0:3]}\n  v2 = f32[3,5] transpose(x2), "
                 "dimensions={1,0}", "b, v2, w"), "several instructions read it"),
        (program(ADDED + "\n  a2 = f32[5,3] slice(a), slice={[0:5],[0:3]}\n  v2 = f32[3,5] transpose(a2), "
                 "dimensions={1,0}", "b, v2, w"), "reads what is accumulated"),
        (program(SUM + "  b = f32[6,3] multiply(a, r)"), "it is not added to"),
        (program(SUM + "  b = f32[6,3] add(r, g)"), "no element of the state"),
        (program(SUM + "  m = f32[6,3] abs(r)\n  b = f32[6,3] add(a, m)"), "abs m lies between"),
        (program(REDUCED.replace("(u, nil)", "(u, n)")), "reduce d lies between"),
        (program(ON_THIS_DEVICE + NEGATED.replace("broadcast(n)", "broadcast(own)").replace(
            "  m =", "  own = f32[] convert(d)\n  m =")), "may differ between devices"),
        (program(ADDED.replace("to_apply=add", "to_apply=most")), "not a sum"),
        (program(NARROW.replace("z = f32[6,3] convert(r)", "y = f8e5m2[6,3] convert(r)\n  z = f32[6,3] convert(y)")),
         "convert y lies between"),
        (program(STACKED.replace(*FORWARDS), "a, v, q", stack="w"), "does not begin with zeros"),
        (program(ON_THIS_DEVICE + STACKED.replace("INDEX", "d"), "a, v, q"), "may differ between devices"),
        (program(ON_THIS_DEVICE + CHOSEN.replace("compare(i, two)", "compare(d, two)")), "may differ between devices"),
        (program(INTO_PARTS.replace("slice(w, INDEX", "slice(w, zero").replace(*FORWARDS), "a, v, q", stack="w"),
         "to another place"),
        (program(CHOSEN.replace("select(many_ok, c, a)", "select(many_ok, c, g)")), "chooses something else"),
    ],
    ids=["scatter", "scattered maximum", "condition", "result read", "element read", "product", "no element",
         "no sum of parts", "start of a sum", "factor", "maximum", "narrower", "start", "place", "predicate",
         "other part", "other choice"],
)  # fmt: skip
def test_stays_in_the_loop(text: str, why: str) -> None:
    module, remarks = rewritten(text, PASS + "{least-gain=0}")
    assert module.to_text() == hloom.parse(text).to_text()
    assert why in remarks[0], remarks
