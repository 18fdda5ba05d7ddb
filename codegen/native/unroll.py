"""Chooses the unroll factor of strips.

Copies hide latencies, share constants and keep the units of the processor busy, until register pressure spills their
values. The arrays and sums that a strip accesses estimate the number of live values; expansions of functions need fewer
copies, because they have much to overlap of their own, but at least two. The number is part of the kernel, not of the
processor: it decides the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from .loops import LOADS, Do, Step, Strip

MOST, OF_CALLS = 4, 2
BITS = 12 * 32  # of one lane of all arrays and sums in all copies; AVX2 has registers for 8 x 32


def copies(steps: Sequence[Step]) -> int:
    """Returns the unroll factor for all strips of a nest, a power of two."""
    strips = [step for step in steps if isinstance(step, Strip)]
    if any(node.do is Do.CALL for step in steps for node in step.nodes):
        return OF_CALLS
    count, widest = MOST, max(map(_bits, strips), default=0)
    while count > 1 and count * widest > BITS:
        count //= 2
    return count


def _bits(strip: Strip) -> int:
    """Returns the bits per lane of all arrays that the strip accesses, and of its sums."""
    loads = [node.lane for node in strip.nodes if node.do in LOADS and node.data.column]
    stores = [store.value.lane for store in strip.stores for _ in range(2 if store.do else 1)]
    return sum(lane.bits for lane in (*loads, *stores, *(fold.value.lane for fold in strip.folds)))
