"""Samples of gather and scatter: every kind of dimension, starts out of bounds, repeated indices, all combiners.

Index operands are constants, because random integers would nearly all be out of bounds.
"""

from __future__ import annotations


def _gather(operand: str, indices: str, values: str, result: str, attributes: str) -> str:
    return f"""
HloModule m
ENTRY e {{
  x = {operand} parameter(0)
  i = {indices} constant({values})
  ROOT r = {result} gather(x, i), {attributes}
}}
"""


_EMBEDDING = _gather(
    "f32[7,5]", "s32[2,3]", "{{0, 6, 3}, {-1, 7, 100}}", "f32[2,3,5]",
    "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,5}",
)  # fmt: skip
_WINDOWS = _gather(
    "f32[6,8,3]", "s64[2,4]", "{{0, 3, 5, 9}, {1, -4, 7, 6}}", "f32[2,3,4,3]",
    "offset_dims={0,1,3}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={2,3,3}",
)  # fmt: skip
_BATCHED = _gather(
    "s32[3,2,6,4]", "u32[2,3,1]", "{{{0}, {5}, {2}}, {{1}, {9}, {3}}}", "s32[2,3,4]",
    "offset_dims={2}, collapsed_slice_dims={2}, start_index_map={2}, operand_batching_dims={0,1}, "
    "start_indices_batching_dims={1,0}, index_vector_dim=2, slice_sizes={1,1,1,4}",
)  # fmt: skip
_UNINDEXED = _gather(
    "bf16[4,1,5]", "s8[3,1]", "{{0}, {2}, {3}}", "bf16[3,2,2]",
    "offset_dims={1,2}, collapsed_slice_dims={1}, start_index_map={2}, index_vector_dim=1, slice_sizes={2,1,2}",
)  # fmt: skip
_WHOLE = _gather(
    "pred[4,5]", "s32[3,2]", "{{0, 0}, {1, 2}, {-3, 4}}", "pred[3,4,5]",
    "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={4,5}",
)  # fmt: skip
_ONE_POINT = _gather(
    "f32[4,5]", "s32[2]", "{3, 1}", "f32[]",
    "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=0, slice_sizes={1,1}",
)  # fmt: skip
_HUGE_START = _gather(
    "f32[6]", "u64[2]", "{18446744073709551615, 2}", "f32[2]",
    "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
)  # fmt: skip
_NOTHING = _gather(
    "s32[3,4]", "s32[2,1]", "{{0}, {1}}", "s32[2,4]",
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,4}",
)  # fmt: skip

_ADD = "ROOT r = {t}[] add(a, b)"
_LAST = "ROOT r = {t}[] copy(b)"
_CLIPPED = "s = {t}[] add(a, b) c = {t}[] constant(1) ROOT r = {t}[] minimum(s, c)"


def _scatter(
    operand: str, indices: str, values: str, updates: str, attributes: str, body: str = _ADD, keep_root: bool = True
) -> str:
    element = operand.split("[")[0]
    return f"""
HloModule m
f {{ a = {element}[] parameter(0) {"" if keep_root else "ROOT "}b = {element}[] parameter(1) {body.format(t=element)} }}
ENTRY e {{
  x = {operand} parameter(0)
  i = {indices} constant({values})
  u = {updates} parameter(1)
  ROOT r = {operand} scatter(x, i, u), {attributes}, to_apply=f
}}
"""


_ROWS = (
    "f32[7,5]", "s32[2,3]", "{{0, 6, 3}, {0, 7, -1}}", "f32[2,3,5]",
    "update_window_dims={2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=2",
)  # fmt: skip
_PATCHES = (
    "s32[6,8,3]", "s64[2,4]", "{{0, 3, 5, 9}, {1, 1, 3, 0}}", "s32[2,3,4,3]",
    "update_window_dims={0,1,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0",
)  # fmt: skip
_BATCHED_ROWS = (
    "f32[3,2,6,4]", "s32[2,3,1]", "{{{0}, {5}, {2}}, {{1}, {9}, {3}}}", "f32[2,3,4]",
    "update_window_dims={2}, inserted_window_dims={2}, scatter_dims_to_operand_dims={2}, "
    "input_batching_dims={0,1}, scatter_indices_batching_dims={1,0}, index_vector_dim=2",
)  # fmt: skip
_WHOLE_UPDATES = (
    "f32[4,5]", "s32[3,2]", "{{0, 0}, {0, 1}, {0, 0}}", "f32[3,4,5]",
    "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1",
)  # fmt: skip
_POINT = (
    "f32[4,5]", "s32[2]", "{3, 1}", "f32[]",
    "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=0",
)  # fmt: skip
_DISTINCT = (
    "f32[7,2]", "s32[3]", "{5, 0, 3}", "f32[3,2]",
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "indices_are_sorted=false, unique_indices=true",
)  # fmt: skip
_BYTES = ("s8[5]", "s32[4]", "{1, 1, 1, 2}", "s8[4]", _ROWS[4].replace("{2}", "{}").replace("dim=2", "dim=1"))
_FLAGS = ("pred[5]", "s32[4]", "{1, 1, 4, 2}", "pred[4]", _BYTES[4])
_SMALL = ("bf16[5]", "s32[4]", "{1, 1, 4, 2}", "bf16[4]", _BYTES[4])

_TWO_ARRAYS = """
HloModule m
f {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  g = pred[] compare(a, c), direction=GE
  v = f32[] select(g, a, c)
  w = s32[] select(g, b, d)
  ROOT r = (f32[], s32[]) tuple(v, w)
}
ENTRY e {
  x = f32[6,2] parameter(0)
  y = s32[6,2] parameter(1)
  i = s32[5] constant({1, 4, 1, 6, 1})
  u = f32[5,2] parameter(2)
  v = s32[5,2] parameter(3)
  ROOT r = (f32[6,2], s32[6,2]) scatter(x, y, i, u, v), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}
"""

_TWO_SUMS = (
    _TWO_ARRAYS.replace("f32", "s8").replace("  g = pred[] compare(a, c), direction=GE\n", "")
    .replace("select(g, a, c)", "add(a, c)").replace("select(g, b, d)", "add(d, b)")
)  # fmt: skip

SAMPLES: dict[str, list[str]] = {
    "gather": [_EMBEDDING, _WINDOWS, _BATCHED, _UNINDEXED, _WHOLE, _ONE_POINT, _HUGE_START, _NOTHING],
    "scatter": [
        _scatter(*_ROWS),
        _scatter(*_ROWS, body="", keep_root=False),
        _scatter(*_ROWS, body="ROOT r = {t}[] maximum(b, a)"),
        _scatter(*_ROWS, body=_CLIPPED),
        _scatter(*_PATCHES),
        _scatter(*_PATCHES, body=_CLIPPED),
        _scatter(*_BATCHED_ROWS),
        _scatter(*_WHOLE_UPDATES),
        _scatter(*_POINT),
        _scatter(*_POINT, body=_LAST),
        _scatter(*_DISTINCT, body=_CLIPPED),
        _scatter(*_BYTES),
        _scatter(*_BYTES, body="ROOT r = {t}[] xor(a, b)"),
        _scatter(*_FLAGS, body="ROOT r = {t}[] or(a, b)"),
        _scatter(*_SMALL),
        _TWO_ARRAYS,
        _TWO_SUMS,
    ],
}
