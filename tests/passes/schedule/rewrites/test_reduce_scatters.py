"""All-reduces of which each device reads its part become reduce-scatters; all others stay, and the remark says why."""

from __future__ import annotations

import pytest
from support.rewrites import collectives, differences, rewritten

PASS = "all-reduce-to-reduce-scatter"
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
ENTRY e {
  x = f32[8,6] parameter(0)
  zero = s32[] constant(0)
  p = u32[] partition-id()
  i = s32[] convert(p)
"""
SUM = "  s = f32[8,6] all-reduce(x), channel_id=1, replica_groups={groups}, use_global_device_ids=true, to_apply=add\n"


def program(offset: str, groups: str = "{{0,1,2,3}}", cut: str = "") -> str:
    """A program that sums x and cuts a part, by default rows `o` to `o` + 2."""
    cut = cut or "ROOT c = f32[2,6] dynamic-slice(s, o, zero), dynamic_slice_sizes={2,6}"
    return f"{HEAD}{SUM.format(groups=groups)}{offset}\n  {cut}\n}}"


BY_ARITHMETIC = "  two = s32[] constant(2)\n  o = s32[] multiply(i, two)"
TABLE = """  t = s32[4] constant({TABLE})
  v = s32[1] dynamic-slice(t, i), dynamic_slice_sizes={1}
  o = s32[] reshape(v)"""
GRID = """  two = s32[] constant(2)  four = s32[] constant(4)  three = s32[] constant(3)
  row = s32[] divide(i, two)  o = s32[] multiply(row, four)
  column = s32[] remainder(i, two)  q = s32[] multiply(column, three)"""
OF_GRID = "ROOT c = f32[4,3] dynamic-slice(s, o, q), dynamic_slice_sizes={4,3}"


def table(*entries: int) -> str:
    return TABLE.replace("TABLE", ",".join(map(str, entries)))


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        (program(BY_ARITHMETIC), True),
        (program(table(0, 2, 4, 6)), True),
        (program(table(0, 2, 4, 99)), True),  # the last start is clamped to 6
        (program(table(2, 0, 6, 4)), False),  # parts in another order than devices
        (program(table(0, 4, 0, 4), "{{0,1},{2,3}}", "ROOT c = f32[4,6] dynamic-slice(s, o, zero), "
                 "dynamic_slice_sizes={4,6}"), True),
        (program(GRID, cut=OF_GRID), True),
        (program(BY_ARITHMETIC).replace("to_apply=add", "to_apply=most"), True),
    ],
    ids=["arithmetic", "table", "clamped", "another order", "pairs", "grid", "maximum"],
)  # fmt: skip
def test_becomes_a_reduce_scatter(text: str, exact: bool) -> None:
    module, remarks = rewritten(text, PASS)
    assert collectives(module) == {"reduce-scatter": 1}
    assert "becomes a reduce-scatter" in remarks[0]
    assert differences(text, module, exact) == ""


def padded(value: str, padding: str) -> str:
    """Tiles of 3 rows of 10 rows, as Hloom divides them by 4."""
    return (
        HEAD.replace("f32[8,6]", "f32[10,6]")
        + SUM.format(groups="{{0,1,2,3}}").replace("[8,6]", "[10,6]")
        + f"""  f = f32[] constant({value})
  t = f32[12,6] pad(s, f), padding={padding}
  three = s32[] constant(3)
  o = s32[] multiply(i, three)
  ROOT c = f32[3,6] dynamic-slice(t, o, zero), dynamic_slice_sizes={{3,6}}
}}"""
    )


def test_of_an_uneven_dimension() -> None:
    text = padded("0", "0_2x0_0")
    module, _ = rewritten(text, PASS)
    assert collectives(module) == {"reduce-scatter": 1}
    assert differences(text, module, exact=True) == ""


@pytest.mark.parametrize(("value", "padding"), [("1", "0_2x0_0"), ("0", "1_1x0_0")], ids=["ones", "in front"])
def test_other_padding_stays(value: str, padding: str) -> None:
    module, remarks = rewritten(padded(value, padding), PASS)
    assert collectives(module) == {"all-reduce": 1}
    assert "padding" in remarks[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (program(table(0, 2, 4, 4)), "read the same part"),  # a wrong offset on one device
        (program(table(0, 2, 4, 5)), "across the borders"),
        (program(BY_ARITHMETIC, "{{0,1},{2,3}}"), "4 slices for groups of 2"),
        (program(BY_ARITHMETIC, "{{0,1,2},{3}}"), "different sizes"),
        (program(BY_ARITHMETIC, cut="c = f32[2,6] dynamic-slice(s, o, zero), dynamic_slice_sizes={2,6}\n"
                 "  ROOT r = (f32[2,6], f32[8,6]) tuple(c, s)"), "2 instructions read it"),
        (program("  v = f32[1,1] slice(x), slice={[0:1],[0:1]}\n  w = s32[1,1] convert(v)\n  o = s32[] reshape(w)"),
         "more than its number"),
        (program(BY_ARITHMETIC).replace("f32[2,6]", "f32[3,6]").replace("{2,6}", "{3,6}"), "do not divide"),
    ],
    ids=["one device elsewhere", "border", "groups", "uneven groups", "second user", "data", "uneven tiles"],
)  # fmt: skip
def test_stays(text: str, why: str) -> None:
    module, remarks = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce": 1}
    assert why in remarks[0], remarks
