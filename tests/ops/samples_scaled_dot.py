"""Samples of scaled-dot. XLA does not run it on CPU; `test_scaled_dot` compares with numbers scaled by hand."""

from __future__ import annotations


def _scaled(lhs: str, rhs: str, lhs_scale: str, rhs_scale: str, result: str, attributes: str) -> str:
    return f"""
// xla: no
// inputs: positive
HloModule m
ENTRY e {{
  x = {lhs} parameter(0)
  y = {rhs} parameter(1)
  s = {lhs_scale} parameter(2)
  t = {rhs_scale} parameter(3)
  ROOT r = {result} scaled-dot(x, y, s, t), {attributes}
}}
"""


_ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
_BATCH = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"

SAMPLES: dict[str, list[str]] = {
    "scaled-dot": [
        _scaled("f8e4m3fn[6,8]", "f8e4m3fn[5,8]", "f8e8m0fnu[6,2]", "f8e8m0fnu[5,2]", "f32[6,5]", _ROWS),
        _scaled("bf16[2,6,8]", "f8e5m2[2,8,5]", "bf16[]", "bf16[2,2,5]", "bf16[2,6,5]", _BATCH),
        _scaled("f32[6,8]", "f32[5,8]", "f32[6,1]", "f32[1,1]", "f32[6,5]", _ROWS + ", operand_precision={high,high}"),
    ]
}
