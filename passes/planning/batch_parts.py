"""Tries the best plan with its batch in parts (`split-batch`): parts hide each other's communication, or take less
memory. Sums of gradients over the parts are those of gradient accumulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..base import PassContext
from .judge import judge
from .on_mesh import PlanCandidate
from .time_left import TimeLeft

_COUNTS = (2, 4)
_LONGER = 4.0  # times a quick forecast of the whole: the program is twice as large, and more is tried
_GAIN = 1e-3  # the share of the time from which on parts are worth it


def in_parts(
    candidates: Sequence[PlanCandidate], context: PassContext, limit: int, left: TimeLeft
) -> Iterator[PlanCandidate]:
    """Yields the best candidate in parts of its batch where that is faster in `limit` bytes (0: those of the machine),
    in the time that is `left`. Nothing is tried where nothing waits.
    """
    best = min(candidates, key=lambda candidate: candidate.rank)
    for parts in _COUNTS:
        waits = best.judged.exposed > _GAIN * best.judged.seconds if best.judged.fits else best.judged.peak > 0
        if not waits or not left.allows(_LONGER):
            return
        found = judge(best.module, context, best.mesh.size, limit, parts=parts, left=left)
        if found.seconds < (best.judged.seconds * (1 - _GAIN) if best.judged.fits else math.inf):
            yield replace(best, name=f"{best.name}, batch in {parts} parts", judged=found, parts=parts)
