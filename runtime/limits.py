"""What cannot be held here: known before anything is allocated."""

from __future__ import annotations

import math
import os
from functools import cache

from ..ir.shape import Shape

LARGEST_RANK = 64  # numpy's
LARGEST_COUNT = 2**63 // 16 - 1


def too_large(shape: Shape) -> str | None:
    """Why no array of this shape can be held by numpy on this machine; None if one can. Tuples hold other arrays."""
    if shape.rank > LARGEST_RANK:
        return f"an array of {shape.rank} dimensions cannot be evaluated, numpy has at most {LARGEST_RANK}"
    # numpy counts the sizes of empty arrays too, and what is computed with is no wider than a c128.
    if math.prod(max(1, d) for d in shape.dims) > LARGEST_COUNT:
        return f"{shape.without_layout()} has sizes that numpy cannot count"
    if not shape.is_tuple and shape.byte_size > memory():
        return f"{shape.without_layout()} takes {shape.byte_size:,} bytes, this machine has {memory():,}"
    return None


@cache
def memory() -> int:
    """Bytes of memory of this machine; where that cannot be found out, as many as there are addresses."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 47
