"""Fits `latency + bytes / bandwidth` to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_FASTEST = 1e15  # bytes per second: times that do not grow
_STEEPEST = 40.0  # logarithm of the ratio of both parts, where one of them is all
_TRIED, _CLOSE = 81, 1e-12  # lines in each round, and how close the last ones are

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """`latency` in seconds and `bandwidth` in bytes per second. `error` is the largest relative error of a point, 1 for
    twice the time and for half of it.
    """

    latency: float
    bandwidth: float
    error: float

    def seconds(self, count: float) -> float:
        """Returns the time of this number of bytes."""
        return self.latency + count / self.bandwidth


def fit_line(counts: Sequence[float], seconds: Sequence[float]) -> LatencyLine:
    """Fits the line with the least sum of squared logarithms of predicted to measured times, without negative
    coefficients. A prediction too fast by a factor is as wrong as one too slow by it. Squared relative errors would
    rate all predictions that are much too fast the same, and caches make small arrays far faster than large ones.

    `counts` are bytes, at least two different numbers of them; counts and `seconds` are above zero. Raises ValueError
    for others.
    """
    if len(set(counts)) < 2 or min(*counts, *seconds) <= 0:
        raise ValueError("times above zero of at least two sizes above zero are needed")
    x, t = np.asarray(counts, np.float64), np.asarray(seconds, np.float64)
    middle = np.exp(np.log(x).mean())
    share = _shares(np.array([_best_ratio(x / middle, t)]))
    off = _off(share, x / middle, t)[0]
    scale, part = float(np.exp(off.mean())), float(share[0])
    error = float(np.exp(np.abs(off - off.mean()).max()) - 1)
    return LatencyLine(scale * (1 - part), 1 / max(scale * part / float(middle), 1 / _FASTEST), error)


def _best_ratio(x: Numbers, t: Numbers) -> float:
    """Returns the logarithm of slope / intercept of the line with the least variance of logarithmic errors."""
    low, high = -_STEEPEST, _STEEPEST
    while high - low > _CLOSE:
        ratios = np.linspace(low, high, _TRIED)
        best = int(np.argmin(_off(_shares(ratios), x, t).var(axis=1)))
        low, high = float(ratios[max(best - 1, 0)]), float(ratios[min(best + 1, _TRIED - 1)])
    return (low + high) / 2


def _shares(ratios: Numbers) -> Numbers:
    """Returns slope / (slope + intercept) for logarithms of slope / intercept; exactly 1 at the steepest."""
    return 1 / (1 + np.exp(-ratios))


def _off(shares: Numbers, x: Numbers, t: Numbers) -> Numbers:
    """Returns the logarithms of time to prediction, a row per line. A line takes one second at x = 1, of which a share
    grows with `x`.
    """
    return np.log(t) - np.log((1 - shares)[:, None] + shares[:, None] * x)
