"""Hashes of numbers in arrays, the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mixed(values: Hashes) -> Hashes:
    """Returns hashes that depend on all bits (the finalizer of SplitMix64)."""
    mixed = values + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
