"""Collectives of every kind combined in every form give the bits that they give one by one, on XLA too."""

from __future__ import annotations

import hloom
import pytest
from hloom.passes.schedule.combining import CombinedForm, combine, is_combinable, key_of
from support.rewrites import differences

HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[8,12] parameter(0)
  y = f32[4,8,4] parameter(1)
  z = f32[16] parameter(2)
  h = bf16[8,4] parameter(3)
"""
GROUPS = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true"
RESULTS = {
    "all-gather": ("f32[8,24]", "f32[4,16,4]", "f32[32]", "dimensions={DIM}, " + GROUPS),
    "reduce-scatter": ("f32[8,6]", "f32[4,4,4]", "f32[8]", "dimensions={DIM}, to_apply=add, " + GROUPS),
    "all-reduce": ("f32[8,12]", "f32[4,8,4]", "f32[16]", "to_apply=add, " + GROUPS),
    "all-to-all": ("f32[8,12]", "f32[4,8,4]", "f32[16]", "dimensions={DIM}, replica_groups={{0,1},{2,3}}"),
    "collective-permute": ("f32[8,12]", "f32[4,8,4]", "f32[16]", "source_target_pairs={{0,1},{1,0},{2,3},{3,2}}"),
}


def program(kind: str) -> str:
    """Three collectives of different ranks; those along a dimension have dimensions 1, 1 and 0."""
    *shapes, attributes = RESULTS[kind]
    lines: list[str] = []
    for number, (name, shape, dim) in enumerate(zip("xyz", shapes, (1, 1, 0), strict=True)):
        text = attributes.replace("DIM", str(dim))
        lines.append(f"  c{name} = {shape} {kind}({name}), channel_id={number + 1}, {text}")
    types = ", ".join(shapes)
    return HEAD + "\n".join(lines) + f"\n  ROOT t = ({types}) tuple(cx, cy, cz)\n}}"


def combined(text: str, form: CombinedForm) -> hloom.Module:
    module = hloom.parse(text)
    members = [i for i in module.entry if is_combinable(i)]
    groups = {key_of(i, form): [j for j in members if key_of(j, form) == key_of(i, form)] for i in members}
    for group in groups.values():
        if len(group) > 1:
            combine(module.entry, group, form)
    module.entry.sort()
    hloom.verify(module)
    return module


@pytest.mark.parametrize("form", list(CombinedForm))
@pytest.mark.parametrize("kind", RESULTS)
def test_values_stay(kind: str, form: CombinedForm) -> None:
    module = combined(program(kind), form)
    assert sum(i.op.is_collective for i in module.entry) == 1
    assert differences(program(kind), module, exact=True) == ""


def test_forms_of_kinds() -> None:
    """XLA runs variadic gathers and all-reduces only; an all-to-all along a dimension takes one operand."""
    def operands(kind: str, form: CombinedForm) -> int:
        return next(len(i.operands) for i in combined(program(kind), form).entry if i.op.is_collective)

    assert {kind: operands(kind, CombinedForm.VARIADIC) for kind in RESULTS} == {
        "all-gather": 3, "reduce-scatter": 3, "all-reduce": 3, "all-to-all": 1, "collective-permute": 3}  # fmt: skip
    assert {kind: operands(kind, CombinedForm.XLA) for kind in RESULTS} == {
        "all-gather": 3, "reduce-scatter": 1, "all-reduce": 3, "all-to-all": 1, "collective-permute": 1}  # fmt: skip
    assert {operands(kind, CombinedForm.FLAT) for kind in RESULTS} == {1}


def test_other_types_groups_and_reducers_stay_apart() -> None:
    text = HEAD.replace("ENTRY", "most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }"
                        "\nENTRY") + f"""
  a = f32[16,12] all-gather(x), channel_id=1, dimensions={{0}}, {GROUPS}
  b = bf16[16,4] all-gather(h), channel_id=2, dimensions={{0}}, {GROUPS}
  c = f32[32,12] all-gather(x), channel_id=3, dimensions={{0}}, replica_groups={{{{0,1,2,3}}}},
    use_global_device_ids=true
  d = f32[16] all-reduce(z), channel_id=4, to_apply=add, {GROUPS}
  e1 = f32[16] all-reduce(z), channel_id=5, to_apply=most, {GROUPS}
  ROOT t = (f32[16,12], bf16[16,4], f32[32,12], f32[16], f32[16]) tuple(a, b, c, d, e1)
}}"""
    assert sum(i.op.is_collective for i in combined(text, CombinedForm.VARIADIC).entry) == 4  # gathers may mix types
    assert sum(i.op.is_collective for i in combined(text, CombinedForm.FLAT).entry) == 5
    assert differences(text, combined(text, CombinedForm.VARIADIC), exact=True) == ""


def test_a_bucket_says_what_its_members_are_for() -> None:
    text = program("all-gather")
    for number, name in enumerate("ab"):
        channel = f"channel_id={number + 1}"
        text = text.replace(channel, f'frontend_attributes={{hloom.cause="operand of {name}"}}, {channel}')
    (bucket,) = (i for i in combined(text, CombinedForm.VARIADIC).entry if i.op.is_collective)
    assert str(bucket.frontend_attributes["hloom.cause"]) == "operand of a, operand of b"
    assert bucket.name == "cx"
