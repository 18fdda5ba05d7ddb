"""Samples of bitcast: as a reshape, with a change of type, and between layouts.

The way to run text on XLA has no bitcast; `test_bitcast` compares with numpy.
"""

from __future__ import annotations


def _bitcast(operand: str, result: str) -> str:
    return f"// xla: no\nHloModule m\nENTRY e {{\n  x = {operand} parameter(0)\n  ROOT r = {result} bitcast(x)\n}}\n"


# A layout inside the program: parameters and results of a test are row-major.
_TRANSPOSED = """
// xla: no
HloModule m
ENTRY e {
  x = f32[4,6]{1,0} parameter(0)
  y = f32[4,6]{0,1} copy(x)
  z = f32[3,2,4]{2,1,0} bitcast(y)
  ROOT r = f32[3,2,4]{2,1,0} negate(z)
}
"""

SAMPLES: dict[str, list[str]] = {
    "bitcast": [
        _bitcast("f32[4,6]", "f32[2,2,6]"),
        _bitcast("s32[4,6]", "s32[6,4]"),
        _bitcast("s32[4,6]", "u32[24]"),
        _bitcast("s32[]", "s32[1,1]"),
        _bitcast("u8[6,8]", "s32[6,2]"),
        _bitcast("s32[6,4]", "s8[12,8]"),
        _bitcast("f32[3,0]", "f32[0,5]"),
        _TRANSPOSED,
    ]
}
