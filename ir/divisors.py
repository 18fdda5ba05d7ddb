"""Finds the divisors of a number: of devices, of rows, of elements."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Returns the divisors of a positive number, the smallest first, and none of any other. It looks at no more
    candidates than the root, so that the largest numbers of devices take no longer than a moment.
    """
    low = [n for n in range(1, math.isqrt(max(0, number)) + 1) if number % n == 0]
    return (*low, *(number // n for n in reversed(low) if n * n != number))
