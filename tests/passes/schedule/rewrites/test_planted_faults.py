"""Rewrites done wrongly, as a mistake in a pass would do them: a proof against the program before partitioning, or the
same inputs on all devices, finds each.

Each fault is an edit of the text of a rewritten program. The same program without the edit is found right.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.runtime.proof.prove import prove
from support.layer_loops import layers
from support.layered_programs import Model
from support.partition_check import partitioned
from support.rewrites import differences, rewritten

FSDP = Model(layers=4, batch=64, width=8, hidden=8, data=4, kind="fsdp")
MICRO = Model(layers=2, batch=16, width=8, hidden=8, data=4, kind="dp", micro=3)
AHEAD, CARRIED = "prefetch-gathers", "carry-reduce-scatters"


def once(pattern: str, by: str, count: int = 1) -> Callable[[str], str]:
    """An edit of the first places that fit a regular expression; there must be as many."""

    def edit(text: str) -> str:
        found, times = re.subn(pattern, by, text, count=count, flags=re.DOTALL)
        assert times == count, pattern
        return found

    return edit


def in_(computation: str, edit: Callable[[str], str]) -> Callable[[str], str]:
    """The edit within one computation (`ENTRY %e`, `%up`)."""

    def within(text: str) -> str:
        start = text.index(f"\n{computation} (") + 1
        end = text.index("\n}\n", start)
        return text[:start] + edit(text[start:end]) + text[end:]

    return within


def both(first: Callable[[str], str], then: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: then(first(text))


UP, DOWN, ENTRY = "%up", "%down", "ENTRY %e"
PROLOGUE = once(r"(%wl1 = \S+ dynamic-slice\(%w, )%begin", r"\g<1>%wrong")
WRONG_START = once(r"(  %begin = s32\[\] constant\(0\)\n)", r"\g<1>  %wrong = s32[] constant(1)\n")
Edit = Callable[[str], str]
FAULTS: dict[str, tuple[Model, str, Edit]] = {
    "wrong prologue index": (FSDP, AHEAD, both(in_(ENTRY, WRONG_START), in_(ENTRY, PROLOGUE))),
    "gathers the layer of this trip": (
        FSDP, AHEAD, in_(UP, once(r"(%wl1\.1 = \S+ dynamic-slice\(%\S+, )%j,", r"\g<1>%get-tuple-element,")),
    ),
    "gathers the layer after the next": (
        FSDP, AHEAD, in_(UP, both(once(r"(  %wl1\.1 = )", "  %jj = s32[] add(%j, %one)\n\\g<1>"),
                                  once(r"(%wl1\.1 = \S+ dynamic-slice\(%\S+, )%j,", r"\g<1>%jj,"))),
    ),
    "one trip too many before the peeled one": (FSDP, AHEAD, in_("%more_up", once(r"constant\(3\)", "constant(4)"))),
    "one trip too few": (FSDP, AHEAD, in_("%more_down", once(r"constant\(3\)", "constant(2)"))),
    "carries the gathered value on unchanged": (
        FSDP, AHEAD, in_(DOWN, once(r"%all-gather\.2, %all-gather\.1\.1\)", "%all-gather.2, %get-tuple-element.9)")),
    ),
    "the last gradient is not written": (
        FSDP, CARRIED, in_(ENTRY, once(r"multiply\(%rw, %nw\.\d+\)", "multiply(%rw, %LAST)")),
    ),
    "a carried gradient is written to the place of this trip": (
        FSDP, CARRIED + "{peel=false}", in_(DOWN, once(r"(%nw\.\d+ = \S+ dynamic-update-slice\(%\S+, %\S+, )%\S+?,",
                                                       r"\g<1>%k,")),
    ),
    "the first trip is run twice": (
        FSDP, CARRIED, in_(ENTRY, once(r"(%constant\S* = s32\[\] constant\()1\)", r"\g<1>0)")),
    ),
    "a carried gradient is reduced twice": (
        FSDP, CARRIED, in_(DOWN, once(r"(dynamic-update-slice\(%\S+, )%nw1\S*(, .*?\n)", r"\g<1>%twice\g<2>")),
    ),
    "no reduction after the loop": (
        MICRO, "sink-all-reduces", in_(ENTRY, once(r"multiply\(%rw, %all-reduce\S*\)", "multiply(%rw, %LAST)")),
    ),
    "reduced in the wrong groups": (
        MICRO, "sink-all-reduces", in_(ENTRY, once(r"replica_groups=\[1,4\]<=\[4\]", "replica_groups={{0,1},{2,3}}")),
    ),
}  # fmt: skip


def repaired(text: str, name: str) -> str:
    """The edited text with the names that the edit leaves to be filled in."""
    if "%LAST" in text:
        loop = "back" if name == "the last gradient is not written" else "all"
        index = 6 if loop == "back" else 4
        element = re.search(rf"(%get-tuple-element\S*) = \S+ get-tuple-element\(%{loop}\S*\), index={index}\n", text)
        assert element is not None
        text = text.replace("%LAST", element[1])
    if "%twice" in text:
        line = re.search(r"(\n  %nw1\S* = (\S+) reshape\((%reduce-scatter\S*)\))", text)
        assert line is not None
        text = text.replace(line[1], f"{line[1]}\n  %twice = {line[2]} add(%{line[1].split('%')[1].split(' ')[0]}, "
                                     f"%{line[1].split('%')[1].split(' ')[0]})", 1)  # fmt: skip
    return text


def local_of(model: Model, passes: str) -> tuple[Module, Module]:
    module = hloom.parse(model.text())
    return module, rewritten(partitioned(module), passes)[0]


@pytest.mark.parametrize("name", FAULTS)
def test_a_proof_finds(name: str) -> None:
    model, passes, plant = FAULTS[name]
    module, local = local_of(model, passes)
    text = local.to_text()
    wrong = repaired(plant(text), name)
    assert wrong != text
    assert prove(module, hloom.parse(wrong), trials=1).outcome == "differs"


@pytest.mark.parametrize(("model", "passes"), {(m, p): None for m, p, _ in FAULTS.values()})
def test_without_faults_nothing_is_found(model: Model, passes: str) -> None:
    module, local = local_of(model, passes)
    assert prove(module, hloom.parse(local.to_text()), trials=1).outcome == "equal"


def test_counted_faults() -> None:
    assert len(FAULTS) + len(BY_HAND) >= 16


HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
"""
ACCUMULATED = HEAD + """body {
  s = (s32[], f32[6,3], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[6,3] get-tuple-element(s), index=1
  x = f32[2,3] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  BODY
  ROOT next = (s32[], f32[6,3], f32[2,3]) tuple(j, b, x)
}
more { s = (s32[], f32[6,3], f32[2,3]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  TEST }
ENTRY e {
  zero = s32[] constant(0)
  a = f32[6,3] parameter(0)
  x = f32[2,3] parameter(1)
  begin = (s32[], f32[6,3], f32[2,3]) tuple(zero, START, x)
  end = (s32[], f32[6,3], f32[2,3]) while(begin), condition=more, body=body
  c = f32[6,3] get-tuple-element(end), index=1
  AFTER
}
"""
GROUPS = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
THRICE = "n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT"
SCATTER = """p = u32[] partition-id()
  d = s32[] convert(p)
  places = s32[2] broadcast(d), dimensions={}
  steps = s32[2] iota(), iota_dimension=0
  rows = s32[2] add(places, steps)
  indices = s32[2,1] reshape(rows)
  b = f32[6,3] scatter(a, indices, VALUE), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"""
ZEROS = "nil = f32[] constant(0)\n  zeros = f32[6,3] broadcast(nil), dimensions={}\n  begin"
PAST = """a = f32[6,3] get-tuple-element(s), index=1
  nil = f32[] constant(0)
  limit = f32[] constant(9)
  all = f32[] reduce(a, nil), dimensions={0,1}, to_apply=add
  far = pred[] compare(all, limit), direction=LT
  n = s32[] constant(3)
  near = pred[] compare(i, n), direction=LT
  ROOT c = pred[] and(far, near)"""


def accumulated(body: str, test: str, start: str, after: str) -> str:
    text = ACCUMULATED.replace("BODY", body).replace("TEST", test).replace("START", start).replace("AFTER", after)
    return text.replace("  begin", f"  {ZEROS}") if start == "zeros" else text


REDUCED = f"r = f32[2,3] all-reduce(x), channel_id=1, {GROUPS}, to_apply=add\n  "
ADDED = "fill = f32[] constant(0)\n  w = f32[6,3] pad(VALUE, fill), padding=0_4x0_0\n  b = f32[6,3] add(a, w)"
AFTER = f"t = f32[6,3] all-reduce(c), channel_id=1, {GROUPS}, to_apply=add\n  ROOT u = f32[6,3] add(a, t)"
SAME = "ROOT u = f32[6,3] copy(c)"
ROWS = HEAD + f"""ENTRY e {{
  x = f32[8,3] parameter(0)
  p = u32[] partition-id()
  i = s32[] convert(p)
  zero = s32[] constant(0)
  t = s32[4] constant({{0,2,4,6}})
  v = s32[1] dynamic-slice(t, i), dynamic_slice_sizes={{1}}
  o = s32[] reshape(v)
  s = f32[8,3] all-reduce(x), channel_id=1, {GROUPS}, to_apply=add
  ROOT c = f32[2,3] dynamic-slice(s, o, zero), dynamic_slice_sizes={{2,3}}
}}
"""
SCATTERED = HEAD + f"""ENTRY e {{
  x = f32[8,3] parameter(0)
  ROOT c = f32[2,3] reduce-scatter(x), channel_id=1, {GROUPS}, dimensions={{0}}, to_apply=add
}}
"""
CHAIN = HEAD + """ENTRY e {
  x = f32[2,3] parameter(0)
  g = f32[4,3] all-gather(x), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}, use_global_device_ids=true
  ROOT h = f32[8,3] all-gather(g), channel_id=2, replica_groups={{0,2},{1,3}}, dimensions={0},
    use_global_device_ids=true
}
"""
START = CHAIN[: CHAIN.index("  g =")]
AT_ONCE = f"{START}  ROOT h = f32[8,3] all-gather(x), channel_id=1, {GROUPS}, dimensions={{0}}\n}}"
SUMS = HEAD + """ENTRY e {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  g = f32[2,3] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=add, use_global_device_ids=true
  h = f32[2,3] all-reduce(y), channel_id=2, replica_groups={{0,2},{1,3}}, to_apply=add, use_global_device_ids=true
  ROOT s = f32[2,3] add(g, h)
}
"""
# What is there, and what a wrong rewrite would make of it; the pass named third leaves the first as it is.
BY_HAND: dict[str, tuple[str, str, str]] = {
    "sunk over a scatter": (
        accumulated(REDUCED + SCATTER.replace("VALUE", "r"), THRICE, "a", SAME),
        accumulated(SCATTER.replace("VALUE", "x"), THRICE, "zeros", AFTER), "sink-all-reduces{least-gain=-9}",
    ),
    "sunk though the condition reads it": (
        accumulated(REDUCED + ADDED.replace("VALUE", "r"), PAST, "zeros", SAME),
        accumulated(ADDED.replace("VALUE", "x"), PAST, "zeros", AFTER.replace("add(a, t)", "copy(t)")),
        "sink-all-reduces{least-gain=-9}",
    ),
    "sunk from a sum that began with something": (
        accumulated(REDUCED + ADDED.replace("VALUE", "r"), THRICE, "a", SAME),
        accumulated(ADDED.replace("VALUE", "x"), THRICE, "a", AFTER.replace("add(a, t)", "copy(t)")), "",
    ),
    "a scatter of parts that one device takes elsewhere": (
        ROWS.replace("{0,2,4,6}", "{0,2,6,4}"), SCATTERED, "",
    ),
    "a scatter where two devices take one part": (
        ROWS.replace("{0,2,4,6}", "{0,2,4,4}"), SCATTERED, "all-reduce-to-reduce-scatter",
    ),
    "one gather in another order": (
        CHAIN.replace("{{0,2},{1,3}}", "{{2,0},{3,1}}"),
        AT_ONCE, "",
    ),
    "one gather of groups that do not fit together": (
        CHAIN.replace("{{0,2},{1,3}}", "{{2,0},{1,3}}"),
        AT_ONCE, "common-gathers",
    ),
    "sums over other groups reduced together": (
        SUMS,
        SUMS[: SUMS.index("  g =")] + "  z = f32[2,3] add(x, y)\n  ROOT g = f32[2,3] all-reduce(z), channel_id=1, "
        "replica_groups={{0,1},{2,3}}, to_apply=add, use_global_device_ids=true\n}", "reassociate-all-reduces",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_the_same_inputs_find(name: str) -> None:
    text, wrong, by = BY_HAND[name]
    assert differences(text, hloom.parse(wrong), whole=True)
    if by:
        module, _ = rewritten(text, by)
        assert module.to_text() == hloom.parse(text).to_text()


def test_the_right_rewrite_of_the_same_program_is_right() -> None:
    """What the faults differ from: right by the same comparison."""
    text = accumulated(REDUCED + ADDED.replace("VALUE", "r"), THRICE, "a", SAME)
    right = accumulated(ADDED.replace("VALUE", "x"), THRICE, "zeros", AFTER)
    assert differences(text, hloom.parse(right), exact=True, whole=True) == ""
    assert differences(ROWS, hloom.parse(SCATTERED), exact=True) == ""
    assert differences(layers(), rewritten(layers(), AHEAD)[0], exact=True) == ""
