"""Places of elements along divided dimensions: beyond what s32 counts, and what their bits become on the way."""

from __future__ import annotations

from typing import Any, cast

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.ir.types.element_type import ELEMENT_TYPES

SUM = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def local_text(body: str) -> str:
    text = f"HloModule m, num_partitions=4\n{SUM}ENTRY e {{\n{body}\n}}"
    return hloom.partition(hloom.parse(text)).to_text()


def test_masks_of_many_elements() -> None:
    text = local_text("""
      x = f32[4000000001] parameter(0), sharding={devices=[4]<=[4]}
      z = f32[] constant(0)
      ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add""")
    assert "s64[] constant(4000000001)" in text


def test_iotas_of_many_elements() -> None:
    text = local_text("  ROOT r = f32[4000000000] iota(), iota_dimension=0, sharding={devices=[4]<=[4]}")
    assert "s64[1000000000] iota" in text


def test_indices_of_many_elements() -> None:
    text = local_text("""
      x = f32[4000000000,2] parameter(0), sharding={devices=[4,1]<=[4]}
      i = s64[5,1] parameter(1)
      ROOT r = f32[5,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1,2}""")
    assert "s64[5,1] subtract" in text
    assert "s32[5" not in text


def test_slices_of_too_many_elements_are_refused() -> None:
    with pytest.raises(hloom.CompileError, match="needs indices up to 3,999,999,993 along a divided dimension"):
        local_text("""
          x = f32[4000000000] parameter(0), sharding={devices=[4]<=[4]}
          i = s64[] parameter(1)
          ROOT r = f32[7] dynamic-slice(x, i), dynamic_slice_sizes={7}""")


def test_slices_keep_the_sign_of_zero() -> None:
    module = hloom.parse("""HloModule m, num_partitions=4
ENTRY e {
  x = f32[4000] parameter(0), sharding={devices=[4]<=[4]}
  ROOT r = f32[3] slice(x), slice={[1500:1503]}, sharding={replicated}
}""")
    local = hloom.partition(module)
    assert [c.kind for c in hloom.collectives(local)] == ["all-reduce"]
    (found,) = hloom.simulate(local, [np.full(4000, -0.0, np.float32)])
    assert np.signbit(found).all()


def test_indices_that_count_along_the_index_vector() -> None:
    module = hloom.parse("""HloModule m, num_partitions=2
ENTRY e {
  x = f32[1,5] parameter(0)
  i = s32[4,1] parameter(1)
  zero = s32[4,1] iota(), iota_dimension=1
  at = s32[4,2] concatenate(zero, i), dimensions={1}
  ROOT r = f32[4] gather(x, at), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
    index_vector_dim=1, slice_sizes={1,1}, sharding={devices=[2]<=[2]}
}""")
    inputs = [np.arange(5, dtype=np.float32)[None], np.array([[3], [0], [4], [1]], np.int32)]
    (found,) = hloom.simulate(hloom.partition(module), inputs)
    assert found.tolist() == [3, 0, 4, 1]


def test_indices_of_four_bits() -> None:
    module = hloom.parse("""HloModule m, num_partitions=4
ENTRY e {
  x = f32[40] parameter(0), sharding={devices=[4]<=[4]}
  i = u4[3,1] parameter(1)
  ROOT r = f32[3] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1}
}""")
    inputs = [np.arange(40, dtype=np.float32), np.array([[15], [0], [11]], ml_dtypes.uint4)]
    (found,) = hloom.simulate(hloom.partition(module), inputs)
    assert found.tolist() == [15, 0, 11]


def test_look_ups_of_numbers_without_a_zero() -> None:
    module = hloom.parse("""HloModule m, num_partitions=4
ENTRY e {
  x = f8e8m0fnu[40] parameter(0), sharding={devices=[4]<=[4]}
  i = s32[3,1] parameter(1)
  ROOT r = f8e8m0fnu[3] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1}
}""")
    x = (2.0 ** np.arange(-20, 20)).astype(ml_dtypes.float8_e8m0fnu)
    (found,) = hloom.simulate(hloom.partition(module), [x, np.array([[15], [0], [39]], np.int32)])
    assert found.astype(np.float64).tolist() == [2.0**-5, 2.0**-20, 2.0**19]


@pytest.mark.parametrize("element", ["f6e2m3fn", "f6e3m2fn"])
def test_moves_and_choices_of_numbers_of_six_bits(element: str) -> None:
    module = hloom.parse(f"""HloModule m, num_partitions=4
ENTRY e {{
  x = {element}[64] parameter(0), sharding={{devices=[4]<=[4]}}
  i = s32[3,1] parameter(1)
  one = {element}[64] copy(x), sharding={{maximal device=1}}
  all = {element}[64] copy(one), sharding={{devices=[4]<=[4]}}
  found = {element}[3] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1}}
  most = ({element}[5], s32[5]) topk(x), k=5, largest=true
  ROOT r = ({element}[64], {element}[3], ({element}[5], s32[5])) tuple(all, found, most)
}}""")
    dtype: Any = ELEMENT_TYPES[element].numpy
    x = cast(Any, np.arange(64, dtype=np.uint8).view(dtype))
    inputs: list[Any] = [x, np.array([[33], [1], [63]], np.int32)]
    moved, found, most, places = hloom.simulate(hloom.partition(module), inputs)
    assert moved.tobytes() == x.tobytes()  # with -0.0
    assert found.tolist() == [x[33], x[1], x[63]]
    assert places.tolist() == [31, 30, 29, 28, 27]
    assert most.tolist() == x[places].tolist()
