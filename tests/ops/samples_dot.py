"""Samples of dot: batch dimensions, several contracting dimensions, mixed and small element types."""

from __future__ import annotations


def _dot(lhs: str, rhs: str, result: str, attributes: str) -> str:
    return f"""
HloModule m
ENTRY e {{
  x = {lhs} parameter(0)
  y = {rhs} parameter(1)
  ROOT r = {result} dot(x, y){attributes}
}}
"""


_PLAIN = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_BATCH = ", lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={2,0}, rhs_contracting_dims={1}"
_TWO = ", lhs_contracting_dims={0,2}, rhs_contracting_dims={3,1}"

# What operands have, and a result that cannot hold their sums.
_LESSER = [("f32", "s32"), ("bf16", "s32"), ("f64", "u8"), ("f16", "pred"), ("s8", "pred"), ("c64", "f32"),
           ("c128", "bf16"), ("c64", "s32")]  # fmt: skip

# Operands of two types, and a result.
_TWO_TYPES = [("f32", "s32", "f32"), ("bf16", "s8", "bf16"), ("bf16", "s8", "f32"), ("s8", "f32", "s32"),
              ("pred", "f32", "f32"), ("pred", "s32", "s32"), ("s32", "pred", "pred"), ("s32", "f16", "f16"),
              ("s8", "s32", "s32"), ("u8", "s8", "s8"), ("s32", "u32", "u32"), ("s64", "f8e4m3fn", "f32"),
              ("f16", "bf16", "bf16"), ("c64", "f32", "c64"), ("f64", "c64", "f32"), ("c64", "s32", "c64"),
              ("pred", "c128", "c128")]  # fmt: skip

SAMPLES: dict[str, list[str]] = {
    "dot": [
        _dot("f32[4,6]", "f32[6,5]", "f32[4,5]", _PLAIN),
        _dot("f64[4,6]", "f64[6,5]", "f64[4,5]", _PLAIN),
        _dot("c64[4,6]", "c64[6,5]", "c64[4,5]", _PLAIN),
        _dot("s32[4,6]", "s32[6,5]", "s32[4,5]", _PLAIN),
        _dot("u8[4,6]", "u8[6,5]", "u8[4,5]", _PLAIN),
        _dot("s8[4,6]", "s8[6,5]", "s32[4,5]", _PLAIN),
        _dot("pred[4,6]", "pred[6,5]", "pred[4,5]", _PLAIN),
        _dot("f16[4,6]", "f16[6,5]", "f16[4,5]", _PLAIN),
        _dot("bf16[4,6]", "bf16[6,5]", "f32[4,5]", _PLAIN),
        *(_dot(f"{t}[4,6]", f"{t}[6,5]", f"{r}[4,5]", _PLAIN) for t, r in _LESSER),
        *(_dot(f"{x}[4,6]", f"{y}[6,5]", f"{r}[4,5]", _PLAIN) for x, y, r in _TWO_TYPES),
        _dot("f32[2,5,3,4]", "s8[3,4,2,7]", "f32[2,3,5,7]", _BATCH),
        _dot("f32[6]", "f32[6]", "f32[]", ", lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        _dot("f32[3]", "f32[2,1]", "f32[3,2,1]", ""),
        _dot("f32[4,0]", "f32[0,5]", "f32[4,5]", _PLAIN),
        _dot("f32[2,5,3,4]", "f32[3,4,2,7]", "f32[2,3,5,7]", _BATCH),
        _dot("f32[2,5,3]", "f32[4,3,1,2]", "f32[5,4,1]", _TWO),
        _dot("f32[4,6]", "f32[6,5]", "f32[4,5]", _PLAIN + ", operand_precision={highest,default}"),
    ]
}
