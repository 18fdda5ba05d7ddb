"""Indices that count are found whatever they go through on the way, however long it is."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.ops.gather import GatherAttributes
from hloom.passes.base import PassContext
from hloom.passes.cleanup.batching import IndexBatching


@pytest.mark.parametrize(("lines", "found"), [
    ("i = s32[8,1] iota(), iota_dimension=0", True),
    ("i = s32[8,1] iota(), iota_dimension=1", False),
    ("i = s32[8,1] constant({{0},{1},{2},{3},{4},{5},{6},{7}})", True),
    ("i = s32[8,1] constant({{0},{1},{2},{3},{4},{5},{7},{6}})", False),
    ("a = s32[8] constant({0,1,2,3,4,5,6,7}) b = s64[8] convert(a) e = s64[1,8] broadcast(b), dimensions={1}\n"
     "d = s64[8,1] reshape(e) i = s32[8,1] convert(d)", True),
    ("a = u8[8,1] iota(), iota_dimension=0 i = s32[8,1] convert(a)", False),
    ("a = s32[4,2] iota(), iota_dimension=0 i = s32[8,1] reshape(a)", False),
    ("v0 = s32[8,1] iota(), iota_dimension=0\n"
     + "\n".join(f"v{n} = s32[8,1] copy(v{n - 1})" for n in range(1, 1500)) + " i = s32[8,1] copy(v1499)", True),
])  # fmt: skip
def test_counted(lines: str, found: bool) -> None:
    module = parse(f"""HloModule m
ENTRY e {{
  x = f32[8,8] parameter(0)
  j = s32[8,1] parameter(1)
  {lines}
  c = s32[8,2] concatenate(i, j), dimensions={{1}}
  ROOT g = f32[8] gather(x, c), offset_dims={{}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}},
    index_vector_dim=1, slice_sizes={{1,1}}
}}""")
    assert IndexBatching().run(module, PassContext()) == found
    attributes = module.entry.root.attributes
    assert isinstance(attributes, GatherAttributes)
    assert attributes.operand_batching_dims == ((0,) if found else ())
