"""Copies of arrays whose element types numpy does not know."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hloom.runtime.native.addresses import copy_into


def test_arrays_of_bf16_are_copied_bit_by_bit() -> None:
    """Also broadcast ones, and those that lie otherwise."""
    bits = np.arange(48, dtype=np.uint16).reshape(6, 8) + 0x7F70  # infinities and NaNs of all kinds
    x = bits.view(np.dtype(ml_dtypes.bfloat16))
    for source in (x, x.T, np.broadcast_to(x[0], (6, 8)), np.broadcast_to(x[:1, :1], (6, 8))):
        target = np.zeros(source.shape, x.dtype)
        copy_into(target, source)
        assert (target.view(np.uint16) == source.view(np.uint16)).all()
