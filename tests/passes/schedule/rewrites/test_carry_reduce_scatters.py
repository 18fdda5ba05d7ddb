"""Reductions of what a trip computes run beside the next trip: the same bits, and only where nothing sees the delay."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.tools.trip_count import trip_count
from support.layer_loops import FORMS, layers
from support.rewrites import differences, rewritten

PASS = "carry-reduce-scatters"


def loop_of(module: Module) -> hloom.Instruction:
    (loop,) = [i for i in module.entry if i.opcode == "while"]
    return loop


def reduced(module: Module) -> int:
    return sum(c.count for c in hloom.collectives(module) if c.kind == "reduce-scatter")


@pytest.mark.share(3)
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("peel", [True, False], ids=["first trip apart", "zeros first"])
def test_the_same_bits(text: str, peel: bool) -> None:
    before = hloom.parse(text)
    module, remarks = rewritten(text, f"{PASS}{{peel={str(peel).lower()}}}")
    assert any("2 reductions run beside the next trip: 512 bytes more in its state" in r for r in remarks)
    assert differences(text, module, exact=True) == ""
    trips = trip_count(loop_of(before))
    assert trips is not None
    assert trip_count(loop_of(module)) == trips - peel
    assert reduced(module) == reduced(before) + 2 * (not peel)


def test_starts_at_the_top_and_is_awaited_where_it_is_written() -> None:
    module, _ = rewritten(layers(), PASS)
    body = loop_of(module).called()[1]
    order = list(body)
    scatters = [n for n, i in enumerate(order) if i.opcode == "reduce-scatter"]
    assert max(scatters) < min(n for n, i in enumerate(order) if i.opcode == "dot")
    assert {u.opcode for n in scatters for u in order[n].users} == {"reshape", "add"}
    assert min(order.index(u) for n in scatters for u in order[n].users) > order.index(
        next(i for i in order if i.opcode == "tanh")
    )


def test_all_reduces_too() -> None:
    """A gradient that every device keeps whole."""
    text = layers().replace("e = f32[8,8] negate(d)", "e = f32[2,8] slice(d), slice={[0:2],[0:8]}").replace(
        "q = f32[2,8] reduce-scatter(e), channel_id=3, dimensions={0},", "q = f32[2,8] all-reduce(e), channel_id=3,"
    )
    module, remarks = rewritten(text, PASS)
    assert any("2 reductions" in r for r in remarks)
    assert differences(text, module, exact=True) == ""


@pytest.mark.parametrize("peel", [True, False])
def test_beside_prefetched_gathers(peel: bool) -> None:
    options = f"{{peel={str(peel).lower()}}}"
    for place in ("i", "back"):
        text = layers(place=place)
        module, _ = rewritten(text, f"prefetch-gathers{options},{PASS}{options}")
        assert differences(text, module, exact=True) == ""
        assert trip_count(loop_of(module)) == 5 - 2 * peel


def test_a_limit_of_bytes() -> None:
    module, remarks = rewritten(layers(), PASS + "{most-bytes=300}")
    assert any("1 reductions run" in r for r in remarks)
    assert any("512 bytes are more than 300 bytes" in r for r in remarks)
    assert differences(layers(), module, exact=True) == ""


TESTS = """  sum = f32[2,8] get-tuple-element(s), index=4
  nil = f32[] constant(0)
  most = f32[] constant(1e9)
  all = f32[] reduce(sum, nil), dimensions={0,1}, to_apply=add
  small = pred[] compare(all, most), direction=LT
  ROOT both = pred[] and(enough, small)"""
KNOWN = """body=body, backend_config={"known_trip_count":{"n":"5"}}"""
OTHER = "  z = f32[2,8] add(OF, rows)\n  z2 = f32[3,8] pad(z, nil), padding=0_1x0_0\n  y2 = f32[3,8] add(y, z2)"
NIL = "  nil = f32[] constant(0)\n"


@pytest.mark.parametrize(
    ("text", "why", "left"),
    [
        (layers(condition=TESTS).replace("body=body", KNOWN), "the condition reads that element", 1),
        (layers(after=NIL + OTHER.replace("OF", "sum"), next_="y2"), "something else reads that element", 1),
        (layers(after=NIL + OTHER.replace("OF", "q"), next_="y2"), "several instructions read q", 1),
        (layers(after=NIL + OTHER.replace("OF", "total"), next_="y2"), "is no new element of the state", 1),
        (layers(after="  ww = f32[5,2,8] negate(new)").replace("w, new, total)", "w, ww, total)"), "no new element", 1),
        (layers(into="w"), "does not end in the element", 1),
        (layers(place="on"), "", 2),
        (layers(place="far", after="").replace("  layer =", "  f = f32[1,1] slice(x), slice={[0:1],[0:1]}\n"
         "  ff = f32[] reshape(f)\n  far = s32[] convert(ff)\n  layer ="), "depends on more than the counter", 1),
        (layers(limit=1), "has 1 trip: nothing is carried", 0),
        (layers(limit=0), "has 0 trips", 0),
        (layers(condition=TESTS), "an unknown number of trips", 0),
    ],
    ids=["condition", "element read", "result read", "sum read", "not the end", "another element", "by device",
         "by data", "one trip", "no trip", "unknown trips"],
)  # fmt: skip
def test_what_stays(text: str, why: str, left: int) -> None:
    """`left` are the reductions that are carried all the same."""
    module, remarks = rewritten(text, PASS)
    assert any(why in r for r in remarks), remarks
    assert sum(f"{left} reductions run" in r for r in remarks) == bool(left), remarks
    if not left:
        assert module.to_text() == hloom.parse(text).to_text()
    assert differences(text, module, exact=True) == ""
