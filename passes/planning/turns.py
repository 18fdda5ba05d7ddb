"""Groups proposals by kind, and puts them in turns, in which they get a first forecast.

Proposals that compute, wait and hide alike in the model are of one kind: they gain alike by the scheduler's rewrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .on_mesh import MeshPlan, Named
from .usual import ALWAYS, USUAL_STATE

Proposed = tuple[MeshPlan, Named]

_ALIKE = 0.05  # difference of all parts of the model's time, relative, below which proposals are of one kind
_FURTHER = 0.05  # share that each proposal before it of its kind adds to the price of one
_FAR = 1.5  # times the least price, beyond which usual shardings are not screened early
_SCREENED = 24  # proposals at most
EARLY = (*ALWAYS, USUAL_STATE)  # proposals that are screened early


def kinds_of(proposed: Sequence[Proposed]) -> list[list[Proposed]]:
    """Groups proposals that compute, wait and hide about as long on the same mesh."""
    kinds: list[list[Proposed]] = []
    for one in proposed:
        kind = next((known for known in kinds if _are_alike(known[0], one)), None)
        if kind is None:
            kinds.append([one])
        else:
            kind.append(one)
    return kinds


def _are_alike(one: Proposed, other: Proposed) -> bool:
    mine, theirs = one[1][2].parts, other[1][2].parts
    return one[0] is other[0] and sum(abs(a - b) for a, b in zip(mine, theirs)) <= _ALIKE * sum(mine)


def turns_of(kinds: Sequence[Sequence[Proposed]]) -> list[tuple[int, Proposed]]:
    """Returns the proposals with the number of their kind, in the order to screen them: the best one, those that are
    best under an assumption on overlap, the usual ones unless they are far behind, and the others by their price,
    further ones of a kind later.
    """
    prices, found = _relative([one for kind in kinds for one in kind]), list[_Turn]()
    for number, kind in enumerate(kinds):
        own = sorted((sum(under := next(prices)) / len(under), n, under) for n in range(len(kind)))
        found += [_Turn(mean * (1 + _FURTHER * k), number, kind[n], under) for k, (mean, n, under) in enumerate(own)]
    found.sort(key=lambda one: one.price)
    best = {one.under: one for one in reversed(found[1:]) if min(one.under) <= 1.0}
    usual = [one for one in found[1:] if one.of[1][0] in EARLY and one.price <= _FAR * found[0].price]
    first = [*found[:1], *reversed(best.values()), *usual]
    return [(one.number, one.of) for one in dict.fromkeys([*first, *found])]


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A proposal with the number of its kind, its prices `under` the assumptions, and the mean of these."""

    price: float
    number: int
    of: Proposed
    under: tuple[float, ...]


def _relative(proposed: Sequence[Proposed]) -> Iterator[tuple[float, ...]]:
    """Yields the prices of each proposal under all assumptions on overlap, each relative to the least under it: nobody
    knows before a schedule how much hides.
    """
    prices: dict[int, Iterator[tuple[float, ...]]] = {}
    for on in {id(on): on for on, _ in proposed}.values():
        prices[id(on)] = iter(on.prices([named[1] for own, named in proposed if own is on]))
    every = [next(prices[id(on)]) for on, _ in proposed]
    least = [min(column) or 1.0 for column in zip(*every)]
    yield from (tuple(price / best for price, best in zip(own, least)) for own in every)


def first_turns(kinds: Sequence[Sequence[Proposed]]) -> list[tuple[int, Proposed]]:
    """Returns the turns that take place at most: the first ones, and all of usual shardings."""
    turns = turns_of(kinds)
    return [*turns[:_SCREENED], *(one for one in turns[_SCREENED:] if one[1][1][0] in EARLY)]
