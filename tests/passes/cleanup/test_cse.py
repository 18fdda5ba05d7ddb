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
