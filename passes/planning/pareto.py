"""Time against memory: plans of a program on one mesh for ever less memory.

Only the schedule knows how much a program takes, so each plan is scheduled within its limit, where it may gather and
compute values again. The model proposes divisions; it has no such repeats, so that it is asked for less memory than the
limit, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..base import PassContext
from .model import Choice
from .on_mesh import MeshPlan, PlanCandidate
from .time_left import TimeLeft

_ROOM = 1.03  # of the least memory, at which the first plan is made
_SHARES = (1.0, 0.7)  # of a limit, for which divisions are proposed


def frontier(
    on: MeshPlan, known: Sequence[PlanCandidate], context: PassContext, count: int = 5, seconds: float = 60.0
) -> list[PlanCandidate]:
    """Returns the plan, which is the first of the `known` candidates, those of them that take less memory, and others
    on the plan's mesh, fastest first: none is slower and larger than another.

    Limits go in `count` equal ratios from the least memory that is found up to that of the plan, while the time lasts,
    of which each has its share.
    """
    best, made = known[0], list(known)
    left, limit = TimeLeft(time.monotonic() + seconds), best.judged.peak
    count = max(count, 2)
    least = on.least_memory() or best.choice
    if least is None:
        return undominated(made)
    own = left.share(1 / count)
    smallest = on.candidate("least memory", least, context, 1, left=own)  # no program fits: its error tells the least
    low = smallest.judged.peak * _ROOM
    if not 0 < low < limit:
        return undominated(made)
    ratio = (limit / low) ** (1 / (count - 1))
    starts = [choice for choice in (best.choice, *(choice for _, choice, _ in on.proposals[:2])) if choice is not None]
    for step in range(count - 1):
        room = int(low * ratio**step)
        choices = [least] if not step else []
        choices += [on.within(room * share, [*starts, least]) for share in _SHARES]
        name, own = f"within {ratio**step:.2f} of the least", left.share(1 / (count - step))
        tried = [on.candidate(name, one, context, room, left=own) for one in _once(choices)]
        made += [one for one in tried if one.judged.fits]
        if time.monotonic() > left.deadline:
            break
    return undominated(made)


def undominated(candidates: Iterable[PlanCandidate]) -> list[PlanCandidate]:
    """Returns the candidates that fit and than which none is both faster and smaller, fastest first."""
    found: list[PlanCandidate] = []
    for one in sorted(candidates, key=lambda c: c.rank):
        if one.judged.fits and all(one.judged.peak < other.judged.peak for other in found):
            found.append(one)
    return found


def _once(choices: Iterable[Choice]) -> Iterable[Choice]:
    return {tuple(sorted(choice.items())): choice for choice in choices}.values()
