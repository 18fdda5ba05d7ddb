"""All-reduces whose results are combined as they were become one; others stay."""

from __future__ import annotations

import hloom
import pytest
from support.rewrites import collectives, differences, rewritten

PASS = "reassociate-all-reduces"
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
half { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT r = bf16[] add(a, b) }
bytes { a = s8[] parameter(0)  b = s8[] parameter(1)  ROOT r = s8[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
ENTRY e {
"""


def reduce(name: str, of: str, by: str = "add", shape: str = "f32[5,3]", groups: str = "{{0,1},{2,3}}") -> str:
    channel = sum(map(ord, name))
    return (f"  {name} = {shape} all-reduce({of}), channel_id={channel}, replica_groups={groups}, "
            f"use_global_device_ids=true, to_apply={by}\n")  # fmt: skip


PARAMETERS = "  x = f32[5,3] parameter(0)\n  y = f32[5,3] parameter(1)\n  z = f32[5,3] parameter(2)\n"
TWO = reduce("rx", "x") + reduce("ry", "y", groups="{{3,2},{1,0}}")
HALF = """  hx = bf16[5,3] convert(x)
  hy = bf16[5,3] convert(y)
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (TWO + "  ROOT s = f32[5,3] add(rx, ry)", 1),
        (TWO + reduce("rz", "z") + "  s = f32[5,3] add(rx, ry)\n  ROOT t = f32[5,3] add(rz, s)", 1),
        (reduce("rx", "x", "most") + reduce("ry", "y", "most") + "  ROOT s = f32[5,3] maximum(rx, ry)", 1),
    ],
    ids=["two", "three", "maximum"],
)
def test_one_is_left(body: str, left: int) -> None:
    text = f"{HEAD}{PARAMETERS}{body}\n}}"
    module, remarks = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce": left}
    assert any("before one all-reduce" in r for r in remarks)
    assert differences(text, module) == ""
    assert differences(text, module, exact=True, whole=True) == ""


def test_in_the_wider_type() -> None:
    body = HALF + reduce("rx", "hx", "half", "bf16[5,3]") + "  wx = f32[5,3] convert(rx)\n" + reduce("ry", "y")
    text = f"{HEAD}{PARAMETERS}{body}  ROOT s = f32[5,3] add(wx, ry)\n}}"
    module, _ = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce": 1}
    assert {i.shape.element.name for i in module.entry if i.op.is_collective} == {"f32"}
    assert differences(text, module, exact=True, whole=True) == ""


NARROW = TWO + "  a = bf16[5,3] convert(rx)\n  b = bf16[5,3] convert(ry)\n  ROOT s = bf16[5,3] add(a, b)"
INTEGERS = (
    "  bx = s8[5,3] convert(x)\n  by = s8[5,3] convert(y)\n" + reduce("rx", "bx", "bytes", "s8[5,3]")
    + reduce("ry", "by", "bytes", "s8[5,3]")
    + "  a = s32[5,3] convert(rx)\n  b = s32[5,3] convert(ry)\n  ROOT s = s32[5,3] add(a, b)"
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (TWO + "  s = f32[5,3] add(rx, ry)\n  ROOT t = (f32[5,3], f32[5,3]) tuple(s, rx)", "something else reads"),
        (reduce("rx", "x") + "  ROOT s = f32[5,3] add(rx, rx)", "something else reads"),
        (reduce("rx", "x") + reduce("ry", "y", groups="{{0,2},{1,3}}") + "  ROOT s = f32[5,3] add(rx, ry)", "groups"),
        (TWO + "  ROOT s = f32[5,3] multiply(rx, ry)", "not reduced by this op"),
        (TWO + "  ROOT s = f32[5,3] subtract(rx, ry)", "not reduced by this op"),
        (reduce("rx", "x") + reduce("ry", "y", "most") + "  ROOT s = f32[5,3] add(rx, ry)", "not reduced by"),
        (NARROW, "wider type"),
        (INTEGERS, "wider type"),
    ],
    ids=["second user", "twice", "groups", "product", "difference", "reducers", "narrower", "integers"],
)
def test_two_stay(body: str, why: str) -> None:
    text = f"{HEAD}{PARAMETERS}{body}\n}}"
    module, remarks = rewritten(text, PASS)
    assert module.to_text() == hloom.parse(text).to_text()
    assert any(why in r for r in remarks), remarks


def test_a_slower_wide_sum_stays_two() -> None:
    """Two sums of bf16 send as much as one of f32, and half as much as one of f64."""
    narrow = HALF + reduce("rx", "hx", "half", "bf16[5,3]") + reduce("ry", "hy", "half", "bf16[5,3]")
    text = f"{HEAD}{PARAMETERS}{narrow}  a = f32[5,3] convert(rx)\n  b = f32[5,3] convert(ry)\n"
    text += "  ROOT s = f32[5,3] add(a, b)\n}"
    module, _ = rewritten(text, PASS)
    assert collectives(module) == {"all-reduce": 1}
    module, remarks = rewritten(text.replace("f32[5,3] convert(r", "f64[5,3] convert(r")
                                .replace("ROOT s = f32", "ROOT s = f64"), PASS)  # fmt: skip
    assert collectives(module) == {"all-reduce": 2}
    assert "one of the wider type takes" in remarks[0]
