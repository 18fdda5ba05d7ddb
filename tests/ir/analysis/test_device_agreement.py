"""What is the same on all devices of a group, in loops of loops too."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.analysis.device_agreement import DeviceAgreement

ALL, ROWS = ((0, 1, 2, 3),), ((0, 1), (2, 3))
STATE = "(s32[], f32[4], f32[4])"
NESTED = f"""HloModule m, num_partitions=4
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
inner {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  e = f32[4] get-tuple-element(s), index=1
  a = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = f32[4] add(a, e)
  ROOT t = {STATE} tuple(j, e, b)
}}
less {{ s = {STATE} parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }}
outer {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  e = f32[4] get-tuple-element(s), index=1
  a = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  begin = {STATE} tuple(zero, e, a)
  end = {STATE} while(begin), condition=less, body=inner
  b = f32[4] get-tuple-element(end), index=2
  p = u32[] partition-id()
  d = f32[] convert(p)
  many = f32[4] broadcast(d), dimensions={{}}
  f = f32[4] add(e, MORE)
  ROOT t = {STATE} tuple(j, f, b)
}}
enough {{ s = {STATE} parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{
  x = f32[4] parameter(0)
  w = f32[4] all-reduce(x), channel_id=1, replica_groups=GROUPS, use_global_device_ids=true, to_apply=add
  zero = s32[] constant(0)
  begin = {STATE} tuple(zero, w, w)
  end = {STATE} while(begin), condition=enough, body=outer
  ROOT r = f32[4] get-tuple-element(end), index=2
}}
"""


@pytest.mark.parametrize(
    ("more", "groups", "asked", "holds"),
    [
        ("many", "{{0,1,2,3}}", ALL, {"i": True, "e": False, "a": False}),
        ("e", "{{0,1,2,3}}", ALL, {"i": True, "e": True, "a": True}),
        ("e", "{{0,1,2,3}}", ROWS, {"i": True, "e": True, "a": True}),
        ("e", "{{0,1},{2,3}}", ALL, {"i": True, "e": False, "a": False}),
        ("e", "{{0,2},{1,3}}", ROWS, {"i": True, "e": False, "a": False}),
    ],
    ids=["outer trips change it", "all", "of part of a group", "of other rows", "of columns"],
)
def test_in_nested_loops(
    more: str, groups: str, asked: tuple[tuple[int, ...], ...], holds: dict[str, bool]
) -> None:
    module = hloom.parse(NESTED.replace("MORE", more).replace("GROUPS", groups))
    for name in ("inner", "outer"):
        computation = next(c for c in module if c.name == name)
        for value, wanted in holds.items():
            instruction = computation.find(value)
            assert instruction is not None
            assert DeviceAgreement(module).holds(instruction, asked) is wanted, f"{value} in {name}"


def test_trips_that_differ() -> None:
    """Nothing is known of a loop that devices leave at different times."""
    text = NESTED.replace("MORE", "e").replace("GROUPS", "{{0,1,2,3}}")
    text = text.replace("less { s =", "less { p = u32[] partition-id()  d = s32[] convert(p)  s =").replace(
        "n = s32[] constant(3)  ROOT", "m = s32[] constant(3)  n = s32[] add(m, d)  ROOT", 1)  # fmt: skip
    module = hloom.parse(text)
    values = {c.name: c for c in module}
    inner, outer = values["inner"].find("i"), values["outer"].find("a")
    assert inner is not None
    assert outer is not None
    assert not DeviceAgreement(module).holds(inner, ALL)
    assert not DeviceAgreement(module).holds(outer, ALL)


def test_parameters_by_their_shardings() -> None:
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  y = f32[8] parameter(1), sharding={replicated}
  ROOT z = f32[8] add(x, y)
}""")
    local = hloom.partition(module)
    x, y = local.entry.parameters
    agreement = DeviceAgreement(local)
    assert [agreement.holds(p, ROWS) for p in (x, y)] == [True, True]
    assert [agreement.holds(p, ((0, 2), (1, 3))) for p in (x, y)] == [False, True]


def test_parameters_of_another_compiler_may_lie_anywhere_unless_it_says_where() -> None:
    text = "HloModule m, num_partitions=4\nENTRY e { x = f32[8] parameter(0)AT  ROOT y = f32[8] negate(x) }"
    found = [hloom.parse(text.replace("AT", at)) for at in ("", ", sharding={replicated}")]
    assert [DeviceAgreement(m).holds(m.entry.root, ALL) for m in found] == [False, True]
