"""Samples of random numbers: both algorithms, all widths, odd and even shapes. Bits must be XLA's, to the bit."""

from __future__ import annotations

_ARRAY = """
// inputs: special
HloModule m
ENTRY e {
  s = u64[2] parameter(0)
  ROOT r = u32[3,5] rng-bit-generator(s), algorithm=rng_three_fry
}
"""


def _bits(algorithm: str, numbers: str, state: str = "u64[2]") -> str:
    # XLA gives unsigned numbers whatever the program says.
    runs = "// xla: no" if numbers.startswith("s") else ""
    return f"""
{runs}
// inputs: special
HloModule m
ENTRY e {{
  s = {state} parameter(0)
  ROOT r = ({state}, {numbers}) rng-bit-generator(s), algorithm={algorithm}
}}
"""


# XLA draws other numbers.
_RNG = """
// xla: no
HloModule m
ENTRY e {{
  a = {t}[] constant(1)
  b = {t}[] constant(3)
  ROOT r = {t}[4,3] rng(a, b), distribution={d}
}}
"""
# The sizes as a third operand, as in old programs.
_RNG_OF_SIZES = """
// xla: no
HloModule m
ENTRY e {
  a = f32[] constant(1)
  b = f32[] constant(3)
  s = s32[2] constant({4, 3})
  ROOT r = f32[4,3] rng(a, b, s), distribution=rng_uniform
}
"""
_STATE = """
// xla: no
HloModule m
ENTRY e {
  ROOT r = u64[2] rng-get-and-update-state(), delta=4096
}
"""

SAMPLES: dict[str, list[str]] = {
    "rng-bit-generator": [
        _bits("rng_three_fry", "u32[8]"),
        _bits("rng_three_fry", "u32[3,5,3]"),
        _bits("rng_three_fry", "s32[3,4,6]"),
        _bits("rng_three_fry", "u32[]"),
        _bits("rng_three_fry", "u64[3,5]"),
        _bits("rng_three_fry", "u8[7]"),
        _bits("rng_three_fry", "s16[2,3]"),
        _bits("rng_three_fry", "u32[3,0]"),
        _bits("rng_philox", "u32[3,5]"),
        _bits("rng_philox", "u32[18]", "u64[3]"),
        _bits("rng_philox", "u64[7]", "u64[3]"),
        _bits("rng_philox", "s64[]"),
        _bits("rng_philox", "u16[5]"),
        _bits("rng_philox", "u4[6]"),
        _bits("rng_philox", "s4[6]"),
        _bits("rng_default", "u32[0]"),
        _bits("rng_default", "s8[9]"),
        _ARRAY,
    ],
    "rng": [_RNG.format(t="f32", d="rng_uniform"), _RNG.format(t="bf16", d="rng_normal"),
            _RNG.format(t="s32", d="rng_uniform"), _RNG_OF_SIZES],
    "rng-get-and-update-state": [_STATE],
}
