"""The plan of an exchange: the rounds that transport the missing pieces.

Plans are made for the devices of one group (`exchange.quotient`). `exchange.rounds` finds the cheapest rounds for few
pieces. Alternatively pieces are striped, with a few array operations: every piece gets a colour that no other piece of
its receiver has, and the pieces of one tile and colour are dealt to the holders of the tile, in several rounds if these
are too few. For very many pieces striping is the only way.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....ir.sharding.tiling import Tiling
from ..base.tiles import Integers, bounds, holders, parts, places, tile_numbers, tiles_touched
from .pieces import Pieces, pieces, turns
from .quotient import Quotient
from .rounds import FEW_PIECES, Messages, rounds_of


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeRound:
    """Pieces that travel together, each padded to `dims`. In a `local` round devices keep what they already hold."""

    pieces: Pieces
    dims: tuple[int, ...]
    local: bool

    @property
    def elements(self) -> int:
        """Elements that a device receives in the round, padding included."""
        return 0 if self.local else math.prod(self.dims)


@dataclass(frozen=True, slots=True, eq=False)
class ExchangePlan:
    """The rounds of one group of devices, described by `part`; the other groups do the same."""

    part: Quotient
    rounds: tuple[ExchangeRound, ...]

    @property
    def received(self) -> int:
        """The most elements that a device receives, padding included."""
        return sum(r.elements for r in self.rounds)

    @property
    def collectives(self) -> int:
        return sum(not r.local for r in self.rounds)


def fewest_rounds(part: Quotient) -> int:
    """Returns a lower bound on the number of rounds: the most pieces that a device receives."""
    want = parts(part.move, part.dims, part.devices)
    have = bounds(part.move.source, part.dims, part.devices)
    touched = tiles_touched(part.move.source, want, part.dims)[1].prod(-1)
    own = (np.minimum(have[..., 1], want[..., 1]) > np.maximum(have[..., 0], want[..., 0])).all(-1)
    return int((touched - own).max(initial=0))


@lru_cache(maxsize=512)
def plan_exchange(part: Quotient, few: int = FEW_PIECES, most: int = 8192) -> ExchangePlan:
    """Plans the rounds that bring every device its part of the target. Neither tiling may be unreduced.

    More than a `few` pieces are striped; up to the `most`, `rounds_of` assigns rounds as well.
    """
    move = part.move
    found = pieces(move.source, parts(move, part.dims, part.devices), part.dims, part.devices)
    kept, sent = found[found.stays], found[~found.stays]
    ways: list[list[ExchangeRound]] = []
    if len(sent) <= most:
        sizes = [tuple(size) for size in sent.size.tolist()]
        chosen = rounds_of(Messages(sent.sender.tolist(), sent.receiver.tolist(), sizes, move.latency))
        ways.append([_round(sent[np.asarray(pieces, np.int64)], local=False) for pieces in chosen])
    if len(sent) > few:
        ways.append(_striped(sent, part))
    travelling = min(ways, key=lambda way: sum(r.elements + move.latency for r in way))
    return ExchangePlan(part, tuple([_round(kept, local=True)] if len(kept) else []) + tuple(travelling))


def _round(found: Pieces, local: bool) -> ExchangeRound:
    return ExchangeRound(found, tuple(found.size.max(0).tolist()), local)


# -- many pieces


def _striped(sent: Pieces, part: Quotient) -> list[ExchangeRound]:
    """Returns the cheaper of two colourings: by the place of a piece among its receiver's, or by its size among them.
    """
    ways = [_dealt(sent, colour, part) for colour in (_stripes(sent, part), _by_size(sent))]
    found, begin = min(ways, key=lambda way: _cost(*way, part.move.latency))
    ends = [*begin[1:].tolist(), len(found)]
    return [_round(found[np.arange(a, b)], local=False) for a, b in zip(begin.tolist(), ends, strict=True)]


def _stripes(sent: Pieces, part: Quotient) -> Integers:
    """Colours pieces by the number of the sender's tile plus that of the receiver's part, per dimension.

    Numbers are taken modulo the most tiles that a receiver needs. A receiver's pieces come from consecutive tiles, so
    their colours differ. Neighbouring receivers begin with different colours, so that the colours of one tile differ as
    far as possible; so do receivers that get the same parts, or other parts of the same tiles, which `turn` counts.
    """
    move, dims, devices = part.move, part.dims, part.devices
    count = tiles_touched(move.source, parts(move, dims, devices), dims)[1].max(0)
    wanted = Tiling(tuple(map(operator.add, move.target.dims, move.inner)), order=move.target.order)
    into = places(wanted, devices)
    turn = turns(tile_numbers(wanted, into * (count > 1)), np.arange(devices))[sent.receiver]
    colour = np.zeros(len(sent), np.int64)
    for dim, size in enumerate(np.asarray(move.source.local_dims(dims), np.int64)):
        number = sent.start[:, dim] // size + into[sent.receiver, dim] + turn
        colour = colour * count[dim] + number % count[dim]
        turn = turn // count[dim]
    return colour


def _by_size(sent: Pieces) -> Integers:
    return turns(sent.receiver, np.argsort(-sent.elements, kind="stable"))


def _dealt(sent: Pieces, colour: Integers, part: Quotient) -> tuple[Pieces, Integers]:
    """Assigns pieces to holders; returns the pieces sorted by round, and where rounds begin."""
    source = part.move.source
    tile = tile_numbers(source, sent.start // np.asarray(source.local_dims(part.dims), np.int64))
    by_tile = holders(source, part.devices)
    copies = by_tile.shape[1]
    turn = turns(tile * (colour.max() + 1) + colour, np.argsort(-sent.elements, kind="stable"))
    dealt = Pieces(by_tile[tile, turn % copies], sent.receiver, sent.start, sent.size)
    number = colour * (turn.max() // copies + 1) + turn // copies
    order = np.argsort(number, kind="stable")
    return dealt[order], np.flatnonzero(np.diff(number[order], prepend=-1))


def _cost(found: Pieces, begin: Integers, latency: float) -> float:
    return float(np.maximum.reduceat(found.size, begin).prod(-1).sum()) + latency * len(begin)
