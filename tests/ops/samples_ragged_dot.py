"""Samples of ragged-dot: ragged free, contracting and batch dimensions, sizes per batch, rows without a group.

XLA has no ragged-dot on CPU; `test_ragged_dot` compares with sums written out. Sizes are constants, for random ones
would not fit.
"""

from __future__ import annotations


def _ragged(lhs: str, rhs: str, sizes: str, values: str, result: str, attributes: str) -> str:
    return f"""
// xla: no
HloModule m
ENTRY e {{
  x = {lhs} parameter(0)
  y = {rhs} parameter(1)
  s = {sizes} constant({values})
  ROOT r = {result} ragged-dot(x, y, s), {attributes}
}}
"""


_EXPERTS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
_BATCHED = (
    "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}, "
    "lhs_ragged_dims={1}, rhs_group_dims={0}"
)
_GRADIENT = "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"
_TWO = "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}, lhs_ragged_dims={2}"
_BATCH = (
    "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, lhs_ragged_dims={0}"
)

SAMPLES: dict[str, list[str]] = {
    "ragged-dot": [
        _ragged("f32[8,4]", "f32[3,4,5]", "s32[3]", "{2, 0, 6}", "f32[8,5]", _EXPERTS),
        _ragged("bf16[8,4]", "bf16[3,4,5]", "s32[3]", "{2, 1, 3}", "bf16[8,5]",
                _EXPERTS + ", operand_precision={highest,default}"),
        _ragged("f32[2,6,4]", "f32[3,2,4,5]", "s32[3]", "{1, 2, 3}", "f32[2,6,5]", _BATCHED),
        _ragged("f32[2,6,4]", "f32[3,2,4,5]", "s32[2,3]", "{{1, 2, 3}, {4, 0, 1}}", "f32[2,6,5]", _BATCHED),
        _ragged("f32[8,4]", "s8[3,4,5]", "s32[3]", "{2, 0, 6}", "f32[8,5]", _EXPERTS),
        _ragged("f32[6,4]", "f32[6,5]", "s64[2]", "{4, 1}", "f32[2,4,5]", _GRADIENT),
        _ragged("f32[4,2,6]", "f32[2,6,5]", "s32[2,2]", "{{4, 1}, {2, 4}}", "f32[2,4,5]", _TWO),
        _ragged("s32[4,3,2]", "s32[4,2,5]", "s32[2]", "{1, 3}", "s32[4,3,5]", _BATCH),
    ]
}
