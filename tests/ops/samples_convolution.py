"""Samples of convolution: every window field, both kinds of groups, dimensions in any order, several element types."""

from __future__ import annotations


def _convolution(lhs: str, rhs: str, result: str, labels: str, window: str = "", more: str = "") -> str:
    window = f"window={{{window}}}, " if window else ""
    return f"""
HloModule m
ENTRY e {{
  x = {lhs} parameter(0)
  k = {rhs} parameter(1)
  ROOT r = {result} convolution(x, k), {window}dim_labels={labels}{more}
}}
"""


def _of_two_types(lhs: str, rhs: str, result: str) -> str:
    """XLA computes it, but not where it comes as StableHLO, which jaxlib makes of it."""
    text = _convolution(f"{lhs}[2,3,6]", f"{rhs}[2,3,3]", f"{result}[2,2,4]", _1D, "size=3")
    return f"// xla: no\n{text.lstrip()}"


_2D = "b01f_01io->b01f"
_1D = "bf0_oi0->bf0"

SAMPLES: dict[str, list[str]] = {
    "convolution": [
        _convolution("f32[2,6,5,4]", "f32[3,3,4,6]", "f32[2,6,5,6]", _2D, "size=3x3 pad=1_1x1_1"),
        _convolution("f32[2,7,6,4]", "f32[3,2,4,2]", "f32[2,3,3,2]", _2D, "size=3x2 stride=2x2"),
        _convolution("f32[4,3,5]", "f32[2,5,6]", "f32[6,4,3]", "b0f_0io->fb0",
                     "size=2 pad=0_1 rhs_reversal=1"),
        _convolution("f32[4,6,5]", "f32[3,6,1]", "f32[4,3,5]", _1D, "size=1"),
        _convolution("f32[2,3,9]", "f32[4,3,3]", "f32[2,4,3]", _1D, "size=3 pad=-1_2 stride=2 rhs_dilate=2",
                     ", operand_precision={highest,default}"),
        _convolution("f32[2,3,4]", "f32[4,3,3]", "f32[2,4,8]", _1D, "size=3 pad=2_1 lhs_dilate=2 rhs_reversal=1"),
        _convolution("f32[2,8,5]", "f32[12,2,3]", "f32[2,12,3]", _1D, "size=3", ", feature_group_count=4"),
        _convolution("f32[2,5,6]", "f32[3,1,6]", "f32[2,3,6]", "b0f_0io->b0f", "size=3 pad=0_0",
                     ", feature_group_count=6"),
        _convolution("f32[6,3,5]", "f32[4,3,2]", "f32[3,4,4]", _1D, "size=2", ", batch_group_count=2"),
        _convolution("f32[3,4]", "f32[4,6]", "f32[3,6]", "bf_io->bf"),
        _convolution("f32[1,4,3,2,4]", "f32[2,2,2,4,2]", "f32[1,3,2,1,2]", "b012f_012io->b012f", "size=2x2x2"),
        _convolution("f64[2,3,6]", "f64[2,3,3]", "f64[2,2,4]", _1D, "size=3"),
        _convolution("bf16[2,3,6]", "bf16[2,3,3]", "bf16[2,2,4]", _1D, "size=3"),
        _convolution("f16[2,3,6]", "f16[2,3,3]", "f16[2,2,4]", _1D, "size=3"),
        _convolution("s32[2,3,6]", "s32[2,3,3]", "s32[2,2,4]", _1D, "size=3"),
        _convolution("c64[2,3,6]", "c64[2,3,3]", "c64[2,2,4]", _1D, "size=3"),
        _convolution("bf16[2,3,6]", "bf16[2,3,3]", "s32[2,2,4]", _1D, "size=3"),
        _convolution("c64[2,3,6]", "c64[2,3,3]", "f32[2,2,4]", _1D, "size=3"),
        _of_two_types("f32", "s32", "f32"),
        _of_two_types("s8", "bf16", "f32"),
        _of_two_types("pred", "f32", "f32"),
        _of_two_types("pred", "s32", "s32"),
        _of_two_types("c64", "f32", "c64"),
        _of_two_types("s32", "f16", "s32"),
        _convolution("f32[2,3,2]", "f32[2,3,5]", "f32[2,2,0]", _1D, "size=5"),
    ]
}
