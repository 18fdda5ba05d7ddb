"""Costs of collectives by algorithm, where links say how long a step between two devices takes.

A collective of k devices consists of steps. Each algorithm has a number of steps, and the bytes over a link for each
byte that a device receives at the least (`cost.formulas`):

    all-gather, reduce-scatter   Bruck, recursive halving       log k           1
    all-reduce                   halving and doubling           2 log k         1
                                 recursive doubling             log k           k log k / 2 (k - 1)
    all-to-all                   pairwise                       k - 1           1
                                 Bruck                          log k           k log k / 2 (k - 1)
    broadcast                    pipelined tree                 log k           k / (k - 1)
    permute                      one message                    1               1

(Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.) In a torus, rings
along all axes that a group has work at the same time: a steps of side / 2 for a axes, 1 / a of the bytes; an all-to-all
sends k side / 4 (k - 1) for each byte received, because most of it crosses several links (`cost.torus` has the axes of
a group where the shape is known). Else a group is taken to be a cube with sides of at least four devices, as slices of
such machines are. A group of fewer than 4^a devices takes log k steps, as if it had sides of two: so many does a
sequence of collectives over its parts take.

A collective over several levels of links may be taken apart: an all-gather goes over the slow links first, with the
parts of single devices, and then over the fast ones. The inverse holds for a reduce-scatter, and an all-reduce is both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from .formulas import Kind
from .links import Link
from .torus import Side, in_shape, over
from .transfer import SECOND, Transfer

_APART: tuple[Kind, ...] = ("all-gather", "reduce-scatter", "all-reduce")


def transfer(kind: Kind, levels: Sequence[tuple[Link, int]]) -> Transfer:
    """Returns the cost of a collective whose groups have this many devices along each level of links, fast links first.
    """
    slowest, devices = levels[0]
    for link, count in levels[1:]:
        slowest, devices = slowest.slower(link), devices * count
    found = list(_algorithms(kind, slowest, devices))
    if len(levels) > 1 and kind in _APART:
        found.append(_apart([(transfer(kind, [level]), level[1]) for level in levels]))
    return Transfer.best(found)


def _algorithms(kind: Kind, link: Link, devices: int) -> Iterator[Transfer]:
    """Yields the costs of all algorithms over links of one level."""
    if link.torus:
        ways = [in_shape(kind, link, devices)] if link.shape else _in_torus(kind, link, devices)
    else:
        ways = _through_switch(kind, devices)
    yield from (in_steps(link, *way) for way in ways)


def over_sides(kind: Kind, link: Link, sides: Collection[Side], devices: int) -> Transfer:
    """Returns the cost of a collective whose groups span these sides of a torus."""
    return in_steps(link, *over(kind, sides, devices))


def in_steps(link: Link, steps: float, share: float) -> Transfer:
    """Returns the cost of so many steps, and of this share of the bytes that a device receives over the link."""
    return Transfer((link.latency + steps * link.step) * SECOND, share * SECOND / link.bandwidth)


def _through_switch(kind: Kind, k: int) -> list[tuple[float, float]]:
    """Returns the steps of each algorithm, and the bytes sent for each received at the least."""
    rounds = (k - 1).bit_length()
    half = rounds * k / (2 * (k - 1)) if k > 1 else 1.0
    if kind == "all-reduce":
        return [(2 * rounds, 1.0), (rounds, max(half, 1.0))]
    if kind in ("all-to-all", "ragged-all-to-all"):
        return [(k - 1, 1.0), (rounds, max(half, 1.0))]
    if kind == "collective-broadcast":
        return [(rounds, k / (k - 1) if k > 1 else 1.0)]
    return [(1, 1.0)] if kind == "collective-permute" else [(rounds, 1.0)]


def _in_torus(kind: Kind, link: Link, k: int) -> list[tuple[float, float]]:
    """Returns the steps, and the bytes over both links of an axis for each received at the least."""
    axes = max(min((k.bit_length() - 1) // 2, link.torus), 1)
    side = k ** (1 / axes)
    steps = max(min(axes * side / 2, math.log2(k)) if k < 4**link.torus else axes * side / 2, 1.0)
    if kind == "collective-permute" or k == 1:
        return [(1, 1.0)]
    if kind in ("all-to-all", "ragged-all-to-all"):
        return [(steps, max(side / 4 * k / (k - 1), 1 / axes))]
    return [(2 * steps if kind == "all-reduce" else steps, 1 / axes)]


def _apart(levels: Sequence[tuple[Transfer, int]]) -> Transfer:
    """Returns the cost of one collective per level, fast links first: each has less of the data than the one inside."""
    devices, latency, per_byte, inside = 1, 0.0, 0.0, 1
    for _, count in levels:
        devices *= count
    for cost, count in levels:
        share = (count - 1) / inside / ((devices - 1) / devices) / count if devices > 1 else 0.0
        latency, per_byte, inside = latency + cost.latency, per_byte + share * cost.per_byte, inside * count
    return Transfer(latency, per_byte)
