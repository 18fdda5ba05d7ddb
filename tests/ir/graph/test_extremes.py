"""Maximum and minimum of floats in all their forms, against one element after the other by IEEE 754-2019."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom.ir.graph.extremes import MAXIMUM, MINIMUM, Extreme

Array = np.ndarray[Any, Any]
NUMBERS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
TYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3)


def _one(extreme: Extreme) -> Callable[[float, float], float]:
    """The function of two numbers, by the text of the standard."""
    is_maximum = extreme is MAXIMUM

    def apply(x: float, y: float) -> float:
        if np.isnan(x) or np.isnan(y):
            return float("nan")
        if x == y == 0:
            return x if np.signbit(x) != is_maximum else y
        return max(x, y) if is_maximum else min(x, y)

    return apply


def _bits(values: Any) -> bytes:
    """The bits of numbers; NaN is one number."""
    wide = np.asarray(values, np.float64)
    return np.where(np.isnan(wide), np.nan, wide).tobytes()


@pytest.mark.parametrize("extreme", [MAXIMUM, MINIMUM], ids=["maximum", "minimum"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
def test_all_forms_agree(extreme: Extreme, dtype: Any) -> None:
    one, rng = _one(extreme), np.random.default_rng(1)
    with np.errstate(all="ignore"):
        pairs = np.array([(x, y) for x in NUMBERS for y in NUMBERS]).astype(dtype)
        x, y = pairs[:, 0], pairs[:, 1]
        expected = [one(float(a), float(b)) for a, b in pairs]
        assert _bits(extreme(x, y)) == _bits(expected)
        in_place = x.copy()
        assert extreme(in_place, y, out=in_place) is in_place
        assert _bits(in_place) == _bits(expected)
        for _ in range(20):
            rows = rng.choice(NUMBERS, (6, 4), p=(0.35, 0.35, 0.09, 0.09, 0.05, 0.05, 0.02)).astype(dtype)
            start = rows[0, 0]
            wide = rows.astype(float).tolist()
            found = extreme.reduce(rows, axis=(1,), dtype=dtype, initial=start)
            assert _bits(found) == _bits([reduce(one, row, float(start)) for row in wide])
            found = extreme.accumulate(rows, axis=1, dtype=dtype)
            assert _bits(found) == _bits([list(accumulate(row, one)) for row in wide])
            places, updates = rng.integers(0, 6, 12), rng.choice(NUMBERS[:4], (12, 4)).astype(dtype)
            for place, update in zip(places.tolist(), updates.astype(float).tolist(), strict=True):
                wide[place] = [one(a, b) for a, b in zip(wide[place], update, strict=True)]
            extreme.at(rows, places, updates)
            assert _bits(rows) == _bits(wide)


def test_integers_are_left_to_numpy() -> None:
    x, y = np.array([0, -3, 5]), np.array([0, 2, -7])
    assert MAXIMUM(x, y).tolist() == [0, 2, 5]
    assert MINIMUM.reduce(x, axis=(0,), dtype=x.dtype, initial=0) == -3
