"""Relates the dimensions before and after a reshape: by groups of equal size, and by common factors."""

from __future__ import annotations

import math

from ..factors.sharding_rule import FactorKind, RuleBuilder
from ..graph.attributes import Dims


def reshape_groups(source: Dims, target: Dims) -> list[tuple[list[int], list[int]]]:
    """Returns the smallest groups of dimensions of a nonempty array that a reshape transforms into each other.

    Omits dimensions of size 1.
    """
    groups: list[tuple[list[int], list[int]]] = []
    rest = [[d for d, n in enumerate(dims) if n > 1] for dims in (source, target)]
    sizes = source, target
    while rest[0]:
        group: tuple[list[int], list[int]] = [], []
        done = [1, 1]
        while done[0] != done[1] or done[0] == 1:
            side = 0 if done[0] <= done[1] else 1
            dim = rest[side].pop(0)
            group[side].append(dim)
            done[side] *= sizes[side][dim]
        groups.append(group)
    return groups


def reshape_factors(builder: RuleBuilder, source: Dims, target: Dims) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the factors of each dimension before and after a reshape of a nonempty array, major first.

    Walks both shapes from the major end and splits off the common factor of the current dimensions. Where they have
    none, the boundaries of the two shapes do not nest ([2,3] to [3,2]): until the products agree again, the rest of
    every dimension must be unsharded.
    """
    factors: tuple[list[list[int]], list[list[int]]] = [[] for _ in source], [[] for _ in target]
    rest = list(source), list(target)
    place = [0, 0]

    def skip_ones(side: int) -> None:
        while place[side] < len(rest[side]) and rest[side][place[side]] == 1:
            place[side] += 1

    def take(side: int, size: int, factor: int | None) -> None:
        if factor is not None:
            factors[side][place[side]].append(factor)
        rest[side][place[side]] //= size
        skip_ones(side)

    skip_ones(0)
    skip_ones(1)
    while place[0] < len(source) and place[1] < len(target):
        common = math.gcd(rest[0][place[0]], rest[1][place[1]])
        if common > 1:
            factor = builder.factor(common)
            take(0, common, factor)
            take(1, common, factor)
            continue
        done = [1, 1]  # the products of the dimensions taken so far, until both sides agree
        while done[0] != done[1] or done[0] == 1:
            side = 0 if done[0] <= done[1] else 1
            size = rest[side][place[side]]
            done[side] *= size
            take(side, size, builder.factor(size, FactorKind.REPLICATE))
    return factors
