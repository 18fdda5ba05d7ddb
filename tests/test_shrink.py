"""The reducer of programs finds what a planted bug needs, and no more."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.passes.spmd.emit import local_op as localize
from shrink import partition_fails, shrink
from support.region_reference import regions_are_closed

TEXT = """
HloModule m, num_partitions=4

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[10,6] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[10,6] parameter(1), sharding={devices=[2,2]<=[4]}
  n = f32[10,6] negate(x)
  s = f32[10,6] add(n, y), sharding={devices=[4,1]<=[4]}
  t = f32[6,10] transpose(s), dimensions={1,0}
  zero = f32[] constant(0)
  r = f32[6] reduce(t, zero), dimensions={1}, to_apply=add
  a = f32[6] abs(r), sharding={replicated}
  ROOT out = (f32[6], f32[10,6]) tuple(a, n)
}
"""


def test_minimal_program_of_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding that nobody masks shows in a sum over an uneven divided dimension."""
    monkeypatch.setattr(localize, "masked", lambda local, number: local.operands[number])  # pyright: ignore
    module = parse(TEXT)
    fails = partition_fails()
    assert fails(module) == "differs"
    smallest = shrink(module, fails)
    assert fails(smallest) == "differs"
    opcodes = sorted(i.opcode for i in smallest.entry)
    assert opcodes in (["constant", "parameter", "reduce"], ["parameter", "parameter", "reduce"]), smallest.to_text()
    assert smallest.entry.root.operands[0].shape.num_elements <= 10


def test_a_program_that_does_not_fail() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(parse(TEXT), partition_fails())


def test_programs_whose_regions_leak_are_no_smaller_ones() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[4] parameter(0), sharding={mesh['a'=2], [{'a'}]}
  y = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  z = f32[2] negate(y)
  ROOT r = f32[4] custom-call(z), custom_call_target="SPMDShardToFullShape", sharding={mesh['a'=2], [{'a'}]}
}"""
    module = parse(text)
    small = shrink(module, lambda m: "fails" if any(i.opcode == "negate" for i in m.entry) else None)
    assert regions_are_closed(small)
    assert [i.opcode for i in small.entry] == ["parameter", "custom-call", "negate", "custom-call"]
    module.entry.root = module.entry.root.operands[0]
    assert not regions_are_closed(module)
