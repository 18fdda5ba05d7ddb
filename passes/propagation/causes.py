"""Causes: why a dimension has its digits. `trace` follows them back to the annotation."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.sharding.digit import Digit, disjoint
from .values import Cause, Leaf


def trace(leaf: Leaf, dim: int, digit: Digit) -> Iterator[tuple[Leaf, int, Cause | None]]:
    """Yields the path of (a part of) a digit back to its annotation: leaf, dimension, and the cause that brought it.

    The last entry has no cause: it is the annotated leaf.
    """
    while True:
        gain = next((g for g in leaf.causes[dim] if not disjoint((digit,), g.digits)), None)
        if gain is None:
            return
        yield leaf, dim, gain.cause
        if gain.cause is None:
            return
        leaf, dim = gain.cause.source, gain.cause.dim
