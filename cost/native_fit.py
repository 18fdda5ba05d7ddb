"""Fits the speed of native code to the times of programs whose counts are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .native_speed import NATIVE, NativeSpeed

Numbers = np.ndarray[Any, np.dtype[np.float64]]

_ROUNDS = 30  # of weights, by which a step of least squares goes where the factors fall
_FASTEST = 0.1  # of a time: faster forecasts weigh no more
_SWEEPS = 3000
_STILL = 1e-7  # relative change of all numbers together, below which a sweep is the last


def fit_native(counts: Sequence[Mapping[str, float]], seconds: Sequence[float]) -> tuple[NativeSpeed, float]:
    """Returns the speed without negative numbers by which forecasts are too fast or too slow by the least factors, as
    the sum of (forecast - time)² / (forecast * time) measures them, and the median of the relative errors. Things that
    no program does are unmeasured.
    """
    used = [name for name in NATIVE if any(one.get(name) for one in counts)]
    shares = np.array([[one.get(name, 0.0) / time for name in used] for one, time in zip(counts, seconds, strict=True)])
    scale = np.sqrt((shares**2).sum(axis=0))
    shares = shares / scale
    found = _least_squares(shares, np.ones(len(shares)), np.zeros(len(used)))
    for _ in range(_ROUNDS):
        ratios = np.maximum(shares @ found, _FASTEST)
        found = _least_squares(shares, (ratios + 1) / ratios**2, found)
    errors = np.abs(shares @ found - 1)
    unmeasured = tuple(name for name in NATIVE if name not in used)
    fitted = dict(zip(used, map(float, found / scale), strict=True))
    return NativeSpeed(**fitted, unmeasured=unmeasured), float(np.median(errors))


def _least_squares(shares: Numbers, weights: Numbers, found: Numbers) -> Numbers:
    """Returns the numbers above zero whose sums in the rows, weighted by the row, are closest to one. One number after
    the other takes its best value, from those given on.
    """
    weighted = shares * weights[:, None]
    products, wanted = weighted.T @ shares, weighted.sum(axis=0)
    found = found.copy()
    for _ in range(_SWEEPS):
        before = found.copy()
        for n in range(len(found)):
            found[n] = max(found[n] + (wanted[n] - products[n] @ found) / products[n, n], 0.0)
        if np.abs(found - before).sum() <= _STILL * max(float(found.sum()), 1e-30):
            break
    return found
