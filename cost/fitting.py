"""Fits `latency + bytes / bandwidth` to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_FASTEST = 1e15  # bytes per second: times that do not grow


@dataclass(frozen=True, slots=True)
class Line:
    """`latency` in seconds and `bandwidth` in bytes per second. `error` is the largest relative error of a point."""

    latency: float
    bandwidth: float
    error: float

    def seconds(self, count: float) -> float:
        """Returns the time of this number of bytes."""
        return self.latency + count / self.bandwidth


def fit_line(counts: Sequence[float], seconds: Sequence[float]) -> Line:
    """Returns the line with the least sum of squared relative errors, of those without negative parts.

    `counts` are bytes, at least two different numbers of them; `seconds` are above zero. Raises ValueError for fewer.
    """
    if len(set(counts)) < 2 or min(seconds) <= 0:
        raise ValueError("times above zero of at least two sizes are needed")
    x, t = np.asarray(counts, float), np.asarray(seconds, float)
    terms = np.stack([1 / t, x / t], axis=1)
    latency, per_byte = (float(v) for v in np.linalg.lstsq(terms, np.ones(len(t)), rcond=None)[0])
    if latency < 0:  # the best line through the origin
        latency, per_byte = 0.0, float(terms[:, 1].sum() / (terms[:, 1] ** 2).sum())
    if per_byte < 0:  # the best constant
        latency, per_byte = float(terms[:, 0].sum() / (terms[:, 0] ** 2).sum()), 0.0
    error = float(np.max(np.abs(latency + per_byte * x - t) / t))
    return Line(latency, 1 / max(per_byte, 1 / _FASTEST), error)
