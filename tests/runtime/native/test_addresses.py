"""Arrays that share memory, beside what numpy says."""

from __future__ import annotations

from itertools import combinations

import ml_dtypes
import numpy as np
from hloom.runtime.native.addresses import Regions, copy_into


def test_parts_of_arrays_are_found() -> None:
    whole = np.arange(60, dtype=np.float32).reshape(5, 12)
    other = np.zeros((3, 4))
    arrays = [whole, whole[1], whole[2, 3:5], whole[::-1, ::2], whole[:0], whole[3:, 4:6], whole.T[1:3], whole[4, 11],
              other, other[1:], other[0, ::-3], np.float64(1.0), np.zeros(0)]  # fmt: skip
    arrays = [np.asarray(x) for x in arrays]
    for first, second in combinations(arrays, 2):
        memory = Regions([first, second])
        for x in arrays:
            assert memory.has_part_of(x) == (np.may_share_memory(x, first) or np.may_share_memory(x, second))
    assert not Regions([]).has_part_of(whole)


def test_arrays_of_bf16_are_copied_bit_by_bit() -> None:
    """Also broadcast ones, and those that lie otherwise."""
    bits = np.arange(48, dtype=np.uint16).reshape(6, 8) + 0x7F70  # infinities and NaNs of all kinds
    x = bits.view(np.dtype(ml_dtypes.bfloat16))
    for source in (x, x.T, np.broadcast_to(x[0], (6, 8)), np.broadcast_to(x[:1, :1], (6, 8))):
        target = np.zeros(source.shape, x.dtype)
        copy_into(target, source)
        assert (target.view(np.uint16) == source.view(np.uint16)).all()
