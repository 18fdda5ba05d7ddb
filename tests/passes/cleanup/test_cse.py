"""Equal instructions are merged, but not custom-calls whose options differ."""

from __future__ import annotations

import hloom
import pytest

# A lower and an upper triangle: the options of LAPACK's routines are in the backend_config.
PROGRAM = """HloModule m
ENTRY e {{ x = f32[3,3] parameter(0)
  a = (f32[3,3], s32[]) custom-call(x), custom_call_target="lapack_spotrf_ffi", backend_config="{{uplo = 76 : ui8}}"
  b = (f32[3,3], s32[]) custom-call(x), custom_call_target="lapack_spotrf_ffi", backend_config="{{uplo = {} : ui8}}"
  y = f32[3,3] get-tuple-element(a), index=0  z = f32[3,3] get-tuple-element(b), index=0
  ROOT t = (f32[3,3], f32[3,3]) tuple(y, z) }}"""


@pytest.mark.parametrize(("option", "calls"), [(76, 1), (85, 2)])
def test_custom_calls_with_other_options_are_not_merged(option: int, calls: int) -> None:
    local = hloom.partition(hloom.parse(PROGRAM.format(option)))
    assert local.to_text().count(" custom-call(") == calls


MEETING = """HloModule m
ENTRY e { x = f32[8] parameter(0)
  a = f32[8] negate(x)  first = f32[8] exponential(a)
  b = f32[8] negate(x)  second = f32[8] exponential(b)
  i = f32[4194304] broadcast(f32[] constant(1)), dimensions={}  third = f32[4194304] tanh(i)
  j = f32[4194304] broadcast(f32[] constant(1)), dimensions={}  fourth = f32[4194304] tanh(j)
  ROOT t = (f32[8], f32[8], f32[4194304], f32[4194304]) tuple(first, second, third, fourth) }"""


def test_only_readers_of_equal_values_are_merged() -> None:
    """Each reads a value that nobody else reads, until these are found to be equal; large broadcasts stay apart."""
    merged = hloom.run_passes(hloom.parse(MEETING), "cse")
    opcodes = [i.opcode for i in merged.entry]
    assert [opcodes.count(o) for o in ("negate", "exponential", "broadcast", "tanh")] == [1, 1, 2, 1]
