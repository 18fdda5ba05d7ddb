"""Gathers of a loop over layers start one trip ahead: the same bits, and only where the next trip is foreseen."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.ops.collective_groups import CollectiveAttributes
from hloom.ir.tools.trip_count import trip_count
from hloom.passes.schedule.rewrites.prefetch_gathers import PrefetchGathers
from support.layer_loops import FORMS, layers
from support.rewrites import collectives, differences, rewritten

PASS = "prefetch-gathers"


def loop_of(module: Module) -> hloom.Instruction:
    (loop,) = [i for i in module.entry if i.opcode == "while"]
    return loop


def sent(module: Module) -> int:
    return sum(c.sent_bytes for c in hloom.collectives(module))


@pytest.mark.share(3)
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("peel", [True, False], ids=["last trip apart", "one gather too many"])
def test_the_same_bits(text: str, peel: bool) -> None:
    before = hloom.parse(text)
    module, remarks = rewritten(text, f"{PASS}{{peel={str(peel).lower()}}}")
    assert "1 all-gathers start one trip ahead: 256 bytes more in its state" in remarks[0]
    assert differences(text, module, exact=True) == ""
    trips = trip_count(loop_of(before))
    assert trips is not None
    assert trip_count(loop_of(module)) == trips - peel
    gathers = 1 + (trips - peel)  # the first one before the loop
    assert sum(c.count for c in hloom.collectives(module) if c.kind == "all-gather") == gathers
    assert (sent(module) == sent(before)) is peel


def test_starts_at_the_top_and_is_awaited_at_the_end() -> None:
    module, _ = rewritten(layers(), PASS)
    body = loop_of(module).called()[1]
    (gather,) = [i for i in body if i.opcode == "all-gather"]
    order = list(body)
    assert not any(i.opcode == "dot" for i in order[: order.index(gather)])
    assert list(gather.users) == [body.root]


def test_unknown_trips() -> None:
    """Without a constant limit the last trip cannot run apart."""
    text = layers().replace("i, limit), direction=LT", "i, most), direction=LT").replace(
        "  limit = s32[] constant(5)\n",
        "  z = f32[2,8] get-tuple-element(s), index=4\n  one = f32[1,1] slice(z), slice={[0:1],[0:1]}\n"
        "  zz = f32[] reshape(one)\n  nil = f32[] constant(0)\n  nothing = f32[] multiply(zz, nil)\n"
        "  number = f32[] constant(3)\n  sum_ = f32[] add(nothing, number)\n  most = s32[] convert(sum_)\n",
    )
    module, remarks = rewritten(text, PASS)
    assert "gathers for nobody" in remarks[0]
    assert differences(text, module, exact=True) == ""


def test_a_limit_of_bytes() -> None:
    text = layers()
    module, remarks = rewritten(text, PASS + "{most-bytes=255}")
    assert module.to_text() == hloom.parse(text).to_text()
    assert "256 bytes are more than 255 bytes" in remarks[0]


def test_several_arrays_in_one_gather() -> None:
    text = layers().replace(
        "  p = f32[3,8] dot(x, g)",
        "  layer2 = f32[2,8] negate(slice_)\n  g2 = f32[8,8] all-gather(layer2), channel_id=9, dimensions={0}, "
        "replica_groups={{0,1,2,3}}, use_global_device_ids=true\n  gg = f32[8,8] add(g, g2)\n"
        "  p = f32[3,8] dot(x, gg)",
    )
    module, remarks = rewritten(text, f"combine-collectives,{PASS}")
    assert "1 all-gathers start" in remarks[0]
    assert "512 bytes" in remarks[0]
    assert collectives(module)["all-gather@body"] == 1
    assert differences(text, module, exact=True) == ""


def test_twice_is_two_trips_ahead() -> None:
    """What the pass did is a loop that it understands: the gather of the next but one layer is carried as well."""
    text = layers()
    module, _ = rewritten(text, f"{PASS},{PASS}")
    assert trip_count(loop_of(module)) == 3
    assert differences(text, module, exact=True) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (layers(gathered="rows"), "rows depends on more than the counter"),
        (layers(limit=1), "runs 1 time: nothing to prefetch"),
        (layers(limit=0), "runs 0 times"),
        (layers(place="zero"), "the same in all trips"),
        (layers().replace("tuple(j, y, w, new, total)", "tuple(j, y, w2, new, total)").replace(
            "  ROOT t = (s32[], f32[3", "  w2 = f32[5,2,8] negate(w)\n  ROOT t = (s32[], f32[3", 1),
         "slice_ depends on more"),
        (layers(after="  firsts = f32[1,1] slice(y), slice={[0:1],[0:1]}\n  f = f32[] reshape(firsts)\n"
                "  k = s32[] convert(f)\n  one = s32[] constant(1)\n  k1 = s32[] clamp(one, k, one)\n"
                "  j2 = s32[] add(i, k1)").replace("tuple(j, y", "tuple(j2, y"), "slice_ depends on more"),
    ],
    ids=["activations", "one trip", "no trip", "invariant", "weights change", "counter depends on data"],
)  # fmt: skip
def test_stays(text: str, why: str) -> None:
    module, remarks = rewritten(text, PASS)
    assert module.to_text() == hloom.parse(text).to_text()
    assert any(why in r for r in remarks), remarks


def test_loops_in_loops() -> None:
    """Inner loops come first; the copies of the peeled trip have loops and channels of their own."""
    inner = layers().replace("ENTRY e {", "outer {").replace("start = s32[] constant(0)", (
        "S = (s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8]) parameter(0)\n  start = s32[] constant(0)\n"
        "  k = s32[] get-tuple-element(S), index=0\n  one = s32[] constant(1)\n  k1 = s32[] add(k, one)\n"
        "  nil = s32[] constant(0)"
    ))  # fmt: skip
    for number, name in enumerate(("x = f32[3,8]", "w = f32[5,2,8]", "c = f32[5,2,8]", "sum = f32[2,8]")):
        inner = inner.replace(f"{name} parameter({number})", f"{name} get-tuple-element(S), index={number + 1}")
    inner = inner.replace(
        "ROOT t = (f32[3,8], f32[5,2,8], f32[2,8], s32[]) tuple(y, new, total, i)",
        """slab = f32[1,2,8] dynamic-slice(w, k, nil, nil), dynamic_slice_sizes={1,2,8}
  flat = f32[2,8] reshape(slab)
  g = f32[8,8] all-gather(flat), channel_id=7, dimensions={0}, replica_groups={{0,1,2,3}}, use_global_device_ids=true
  z = f32[3,8] dot(y, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8]) tuple(k1, z, w, new, total)""",
    )
    state = "(s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8])"
    text = inner + f"""
three {{ s = {state} parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{
  start = s32[] constant(0)
  x = f32[3,8] parameter(0)
  w = f32[5,2,8] parameter(1)
  c = f32[5,2,8] parameter(2)
  sum = f32[2,8] parameter(3)
  begin = {state} tuple(start, x, w, c, sum)
  end = {state} while(begin), condition=three, body=outer
  y = f32[3,8] get-tuple-element(end), index=1
  ROOT t = f32[3,8] tanh(y)
}}
"""
    module, remarks = rewritten(text, PASS)
    assert sum("one trip ahead" in r for r in remarks) == 2
    assert differences(text, module, exact=True) == ""
    attributes = [i.attributes for c in module for i in c]
    channels = [a.channel_id for a in attributes if isinstance(a, CollectiveAttributes)]
    assert len(set(channels)) == len(channels)


FENCED = """  both = (f32[2,8], f32[3,8]) tuple(slice_, x)
  fence = (f32[2,8], f32[3,8]) opt-barrier(both)
  weights = f32[2,8] get-tuple-element(fence), index=0
  behind = f32[3,8] get-tuple-element(fence), index=1
  g = f32[8,8] all-gather(weights)"""


@pytest.mark.parametrize("is_foreseen", [True, False])
def test_weights_behind_a_barrier_with_activations(is_foreseen: bool) -> None:
    """A rematerialized layer reads both behind one barrier. Weights that depend on the activations stay behind it."""
    text = layers().replace("  g = f32[8,8] all-gather(slice_)", FENCED).replace(
        "p = f32[3,8] dot(x, g)", "p = f32[3,8] dot(behind, g)"
    )  # fmt: skip
    if not is_foreseen:
        text = text.replace("  g = f32[8,8] all-gather(weights)", (
            "  part = f32[2,8] slice(behind), slice={[0:2],[0:8]}\n"
            "  again = f32[2,8] add(weights, part)\n  g = f32[8,8] all-gather(again)"
        )).replace("  part = f32[1,2,8]", "  rs = f32[1,2,8]").replace("(c, part,", "(c, rs,")  # fmt: skip
    module, remarks = rewritten(text, PASS)
    assert ("1 all-gathers start one trip ahead" in remarks[0]) is is_foreseen
    (barrier,) = [i for i in loop_of(module).called()[1] if i.opcode == "opt-barrier"]
    assert len(barrier.users) == 2 - is_foreseen
    assert differences(text, module, exact=True, seeds=1) == ""
    assert PrefetchGathers().passes_barriers(hloom.parse(text)) is is_foreseen
    assert "is not prefetched" in rewritten(text, f"{PASS}{{barriers=false}}")[1][0]
