"""Fits the speed of native code to the times of programs whose counts are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .native_speed import APART, COMPUTING, HIDING, NATIVE, WAITING, Counts, NativeSpeed

Numbers = np.ndarray[Any, np.dtype[np.float64]]

_ROUNDS = 40  # in which a step of least squares goes where the factors fall
_STEP = 0.5  # of the way that a round goes: what bytes wait for changes with each
_FASTEST = 0.1  # of a time: faster forecasts weigh no more
_SWEEPS = 3000
_STILL = 1e-7  # relative change of all numbers together, below which a sweep is the last
_OPERATION = NATIVE.index("operation")
_COMPUTING, _WAITING = (np.array([name in names for name in NATIVE]) for names in (COMPUTING, WAITING))


def fit_native(
    programs: Sequence[Sequence[tuple[float, Counts]]], seconds: Sequence[float]
) -> tuple[NativeSpeed, float]:
    """Returns the speed without negative numbers by which forecasts are too fast or too slow by the least factors, as
    the sum of (forecast - time)² / (forecast * time) measures them, and the median of the relative errors. Things that
    no program does are unmeasured. Programs are given by their ops: the executions of each, and what it does.
    """
    times = np.array(seconds)
    work = np.array([[runs * one.get(name, 0.0) for name in NATIVE] for ops in programs for runs, one in ops])
    apart = np.array([runs * one.get(APART, 0.0) for ops in programs for runs, one in ops])
    owners = np.array([n for n, ops in enumerate(programs) for _ in ops])
    is_used = (work > 0).sum(axis=0) > 0
    work /= times[owners, None]
    apart /= times[owners]
    scale = np.where(is_used, np.sqrt((work**2).sum(axis=0)), 1.0)
    work /= scale
    apart /= scale[_OPERATION]

    def shares(work: Numbers) -> Numbers:
        found = np.zeros((len(programs), len(NATIVE)))
        np.add.at(found, owners, work)
        return found

    found = _least_squares(shares(work), np.ones(len(programs)), np.zeros(len(NATIVE)))  # as if nothing were hidden
    best, least = found, math.inf
    for _ in range(_ROUNDS):
        now = shares(_waited(work, apart, found))
        ratios = np.maximum(now @ found, _FASTEST)
        wrong = float(((ratios - 1) ** 2 / ratios).sum())
        if wrong < least:
            best, least = found, wrong
        found = found + _STEP * (_least_squares(now, (ratios + 1) / ratios**2, found) - found)
    errors = np.abs(shares(_waited(work, apart, best)) @ best - 1)
    speeds = best / scale
    fitted = {NATIVE[n]: float(speeds[n]) for n in np.flatnonzero(is_used)}
    unmeasured = tuple(name for name in NATIVE if name not in fitted)
    return NativeSpeed(**fitted, unmeasured=unmeasured), float(np.median(errors))


def _waited(work: Numbers, apart: Numbers, speed: Numbers) -> Numbers:
    """Returns the work of ops as far as it takes time at this speed. Bytes that come while an op computes take none;
    where some come later, all count, and a part of the computing does not. Operations `apart` hide nothing.
    """
    spent = work * speed
    hiding = HIDING * (spent[:, _COMPUTING].sum(axis=1) - apart * speed[_OPERATION])
    waits = spent[:, _WAITING].sum(axis=1) > hiding
    found = work.copy()
    found[np.ix_(~waits, _WAITING)] = 0.0
    found[np.ix_(waits, _COMPUTING)] *= 1 - HIDING
    found[waits, _OPERATION] += HIDING * apart[waits]
    return found


def _least_squares(shares: Numbers, weights: Numbers, found: Numbers) -> Numbers:
    """Returns the numbers above zero whose sums in the rows, weighted by the row, are closest to one. One number after
    the other takes its best value, from those given on; those that count in no row stay.
    """
    weighted = shares * weights[:, None]
    products, wanted = weighted.T @ shares, weighted.sum(axis=0)
    found, counted = found.copy(), np.flatnonzero(products.diagonal())
    for _ in range(_SWEEPS):
        before = found.copy()
        for n in counted:
            found[n] = max(found[n] + (wanted[n] - products[n] @ found) / products[n, n], 0.0)
        if np.abs(found - before).sum() <= _STILL * max(float(found.sum()), 1e-30):
            break
    return found
