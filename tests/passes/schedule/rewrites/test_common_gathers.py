"""Gathers of what devices have already, or get by another gather, are merged; others stay."""

from __future__ import annotations

import hloom
import pytest
from support.rewrites import collectives, differences, rewritten

PASS = "common-gathers"
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[2,3] parameter(0)
  zero = s32[] constant(0)
  p = u32[] partition-id()
  i = s32[] convert(p)
"""


def gather(name: str, of: str, shape: str, dim: int, groups: str) -> str:
    channel = sum(map(ord, name))
    return (f"  {name} = f32[{shape}] all-gather({of}), channel_id={channel}, replica_groups={groups}, "
            f"dimensions={{{dim}}}, use_global_device_ids=true\n")  # fmt: skip


ROWS, COLUMNS, ALL = "{{0,1},{2,3}}", "{{0,2},{1,3}}", "{{0,1,2,3}}"
SUM = """  s = f32[4,3] all-reduce(y), channel_id=9, replica_groups=GROUPS, use_global_device_ids=true, to_apply=add
  two = s32[] constant(2)
  j = s32[] remainder(i, two)
  o = s32[] multiply(j, two)
  c = f32[2,3] dynamic-slice(s, o, zero), dynamic_slice_sizes={2,3}
"""
FOUR = "  y = f32[4,3] parameter(1)\n"
BOTH = "  ROOT t = (f32[4,3], f32[4,3]) tuple(g, h)"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (gather("g", "x", "4,3", 0, ROWS) + gather("h", "x", "4,3", 0, "[2,2]<=[4]") + BOTH, 1),
        (gather("g", "x", "4,3", 0, ROWS) + gather("h", "g", "8,3", 0, COLUMNS), 1),
        (gather("g", "x", "4,3", 0, COLUMNS) + gather("h", "g", "8,3", 0, ROWS), 1),
        (gather("g", "x", "4,3", 0, "{{1,0},{3,2}}") + gather("h", "g", "8,3", 0, "{{2,0},{3,1}}"), 1),
        (gather("g", "x", "4,3", 0, ROWS) + gather("h", "g", "8,3", 0, "{{0,3},{1,2}}"), 1),
        (FOUR + SUM.replace("GROUPS", ALL) + gather("g", "c", "4,3", 0, ROWS), 1),
        (FOUR + SUM.replace("GROUPS", ROWS) + gather("g", "c", "4,3", 0, ROWS), 1),
        (gather("g", "x", "4,3", 0, ROWS) + "  a = f32[2,2] slice(x), slice={[0:2],[1:3]}\n"
         + gather("h", "a", "4,2", 0, ROWS) + "  ROOT t = (f32[4,3], f32[4,2]) tuple(g, h)", 1),
    ],
    ids=["equal", "chain", "other chain", "any order", "diagonal", "of all", "of the group", "part"],
)  # fmt: skip
def test_merged(body: str, left: int) -> None:
    text = f"{HEAD}{body}\n}}"
    module, remarks = rewritten(text, PASS)
    assert sum(collectives(module).values()) == left, module.to_text()
    assert remarks
    assert differences(text, module, exact=True) == ""


def test_a_chain_of_three() -> None:
    groups = ("{{0,1},{2,3},{4,5},{6,7}}", "{{0,2},{1,3},{4,6},{5,7}}", "{{0,4},{1,5},{2,6},{3,7}}")
    body = "".join(
        gather(name, of, f"{n},3", 0, g)
        for name, of, n, g in zip("ghk", "xgh", (4, 8, 16), groups, strict=True)
    )
    text = f"{HEAD.replace('=4', '=8')}{body}}}"
    module, _ = rewritten(text, PASS)
    assert collectives(module) == {"all-gather": 1}
    assert "[1,8]<=[8]" in module.to_text()
    assert differences(text, module, exact=True) == ""


def test_along_two_dimensions_where_that_is_faster() -> None:
    text = f"{HEAD}{gather('g', 'x', '4,3', 0, ROWS)}{gather('h', 'g', '4,6', 1, COLUMNS)}}}"
    module, remarks = rewritten(text, PASS)
    assert collectives(module) == {"all-gather": 2}, "copies cost more than a start of 0.01 ns"
    assert "at once" in remarks[0]
    module, _ = rewritten(text, PASS, hloom.parse_machine("h100"))
    assert collectives(module) == {"all-gather": 1}
    assert differences(text, module, exact=True) == ""


@pytest.mark.parametrize(
    "body",
    [
        gather("g", "x", "4,3", 0, ROWS) + gather("h", "x", "4,3", 0, COLUMNS) + BOTH,
        gather("g", "x", "4,3", 0, ROWS) + gather("h", "x", "4,3", 0, "{{1,0},{3,2}}") + BOTH,
        gather("g", "x", "4,3", 0, ROWS) + gather("h", "g", "8,3", 0, "{{2,0},{1,3}}"),
        gather("g", "x", "4,3", 0, ROWS) + gather("h", "g", "8,3", 0, ROWS),
        gather("g", "x", "4,3", 0, ROWS) + gather("h", "g", "8,3", 0, COLUMNS)
        + "  ROOT t = (f32[4,3], f32[8,3]) tuple(g, h)",
        FOUR + SUM.replace("GROUPS", COLUMNS) + gather("g", "c", "4,3", 0, ROWS),
        FOUR + SUM.replace("GROUPS", ALL) + gather("g", "c", "4,3", 0, COLUMNS),
        FOUR + SUM.replace("GROUPS", ALL).replace("slice(s,", "slice(y,") + gather("g", "c", "4,3", 0, ROWS),
        gather("g", "x", "4,3", 0, ROWS) + "  a = f32[1,3] slice(x), slice={[1:2],[0:3]}\n"
        + gather("h", "a", "2,3", 0, ROWS) + "  ROOT t = (f32[4,3], f32[2,3]) tuple(g, h)",
    ],
    ids=["other groups", "other order", "no grid", "same groups", "second user", "not uniform", "other parts", "data",
         "part of the dimension"],
)  # fmt: skip
def test_kept(body: str) -> None:
    text = f"{HEAD}{body}\n}}"
    module, _ = rewritten(text, PASS)
    assert module.to_text() == hloom.parse(text).to_text()
