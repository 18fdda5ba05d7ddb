"""The plan of a halo exchange: which pieces of a tiled dimension travel, so that every tile gets an interval of it.

A plan considers one dimension alone: tiles count 0, 1, .. along it, and every tile wants an interval of one size that
begins anywhere. A tile keeps what lies in its own part; the rest is cut at the borders of tiles into pieces. A round is
a set of pieces in which no tile sends or receives twice: one collective-permute. If all intervals have the same offset
from their tiles (the halo of a window), a round is one distance between tiles; otherwise the cheapest of a few
groupings is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...cost.machine import DEFAULT, Transfer
from ...ir.diagnostics import fail

MOST_TILES = 1 << 16
_USUAL = DEFAULT.collective("collective-permute", ())


def check_listed(tiles: int) -> None:
    """Raises CompileError if a dimension has more tiles than a plan can list."""
    if tiles > MOST_TILES:
        fail(f"a halo exchange lists its tiles: at most {MOST_TILES:,} are possible, not {tiles:,}",
             help="divide another dimension, or this one by fewer devices")


@dataclass(frozen=True, slots=True)
class TiledDim:
    """A dimension of `extent` elements in `tiles` tiles of `tile` elements; the last ones may be padded or empty.

    `transfer` is the time of a round between the tiles. Raises CompileError for more than `MOST_TILES` tiles, because
    plans list them.
    """

    tiles: int
    tile: int
    extent: int
    transfer: Transfer = _USUAL

    def __post_init__(self) -> None:
        check_listed(self.tiles)


@dataclass(frozen=True, slots=True)
class HaloPiece:
    """`length` elements, from place `source` of the tile of `sender` to place `target` of the interval of `receiver`.
    """

    sender: int
    receiver: int
    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class HaloRound:
    """Pieces that travel together, the longest of `length` elements."""

    pieces: tuple[HaloPiece, ...]
    length: int

    @property
    def travels(self) -> bool:
        return any(p.sender != p.receiver for p in self.pieces)

    @property
    def alike(self) -> bool:
        """Whether all pieces have the same source place, target place and length."""
        return len({(p.source, p.target, p.length) for p in self.pieces}) == 1


@dataclass(frozen=True, slots=True)
class HaloPlan:
    """The rounds of an exchange. Each device receives `received` elements per element of the other dimensions.

    `alike`: all rounds are alike and fill disjoint places, so that the pieces can be concatenated. `clean`: then all
    places outside the dimension come out as zero.
    """

    rounds: tuple[HaloRound, ...]
    received: int
    alike: bool
    clean: bool
    transfer: Transfer

    def cost(self, width: float) -> float:
        """Returns the time of all rounds (see `cost.machine`), where an index of the dimension has `width` bytes."""
        return sum(self.transfer.time(r.length * width) for r in self.rounds if r.travels)


@lru_cache(maxsize=16384)
def plan_halo(tiled: TiledDim, starts: tuple[int, ...], size: int, width: int = 4, wrap: bool = False) -> HaloPlan:
    """Plans the rounds that bring tile i the elements starts[i] .. starts[i] + size - 1 of a dimension.

    With `wrap` the dimension is a ring; otherwise the plan omits elements outside of it. An index of the dimension has
    `width` bytes, which weigh against latencies.
    """
    even = tiled.tiles * tiled.tile == tiled.extent
    if len({s - i * tiled.tile for i, s in enumerate(starts)}) == 1 and (even or not wrap):
        return _shifted(tiled, starts[0], size, wrap)
    return _cheapest([p for i, s in enumerate(starts) for p in _pieces(tiled, i, s, size, wrap)], tiled, width)


def own_pieces(tiled: TiledDim, starts: Sequence[int], size: int) -> tuple[HaloPiece, ...]:
    """Returns the pieces that every tile already holds of its interval."""
    found = (p for i, s in enumerate(starts) for p in _pieces(tiled, i, s, size, wrap=False))
    return tuple(p for p in found if p.sender == p.receiver)


@lru_cache(maxsize=16384)
def plan_joined(tiled_dims: tuple[TiledDim, ...], size: int, width: int = 4) -> HaloPlan:
    """Plans the rounds that bring tile i the elements i * size .. i * size + size - 1 of concatenated dimensions.

    Each device holds its tiles of these dimensions concatenated, too.
    """
    pieces: list[HaloPiece] = []
    begin = held = 0
    for tiled in tiled_dims:
        for tile in range(tiled.tiles):
            found = _pieces(tiled, tile, tile * size - begin, size, wrap=False)
            pieces += [replace(p, source=p.source + held) for p in found]
        begin += tiled.extent
        held += tiled.tile
    return _cheapest(pieces, replace(tiled_dims[0], tile=held, extent=tiled_dims[0].tiles * held), width)


def _cheapest(pieces: Sequence[HaloPiece], tiled: TiledDim, width: int) -> HaloPlan:
    own, sent = [p for p in pieces if p.sender == p.receiver], [p for p in pieces if p.sender != p.receiver]
    kept = [own] if own else []
    ways = [
        [*kept, *_by(sent, lambda p: p.sender - p.receiver)],
        [*kept, *_by(sent, lambda p: (p.sender - p.receiver) % tiled.tiles)],
        [*kept, *_coloured(sent)],
        _coloured(pieces),
    ]
    plans = [_plan(tiled, way) for way in ways if all(map(_is_round, way))]
    return min(plans, key=lambda p: (p.cost(width), not p.alike))


def _shifted(tiled: TiledDim, offset: int, size: int, wrap: bool) -> HaloPlan:
    """Plans intervals that begin at i * tile + offset: one round per distance between tiles, padding included."""
    rounds: list[list[HaloPiece]] = []
    for distance in range(offset // tiled.tile, (offset + size - 1) // tiled.tile + 1):
        begin = max(0, offset - distance * tiled.tile)
        end = min(tiled.tile, offset + size - distance * tiled.tile)
        pairs = [((i + distance) % tiled.tiles if wrap else i + distance, i) for i in range(tiled.tiles)]
        found = [
            HaloPiece(j, i, begin, distance * tiled.tile + begin - offset, end - begin)
            for j, i in pairs
            if 0 <= j < tiled.tiles and j * tiled.tile + begin < tiled.extent
        ]
        if found:
            rounds.append(found)
    return _plan(tiled, rounds)


def _pieces(tiled: TiledDim, receiver: int, start: int, size: int, wrap: bool) -> Iterator[HaloPiece]:
    """Yields the pieces of one tile's interval, cut at the borders of tiles."""
    place = start if wrap else max(start, 0)
    end = start + size if wrap else min(start + size, tiled.extent)
    while place < end:
        here = place % tiled.extent
        sender, source = divmod(here, tiled.tile)
        length = min(end - place, tiled.tile - source, tiled.extent - here)
        yield HaloPiece(sender, receiver, source, place - start, length)
        place += length


def _plan(tiled: TiledDim, groups: Sequence[list[HaloPiece]]) -> HaloPlan:
    rounds = tuple(HaloRound(tuple(g), max(p.length for p in g)) for g in groups)
    received = sum(r.length for r in rounds if r.travels)
    ranges = sorted((r.pieces[0].target, r.pieces[0].target + r.length) for r in rounds)
    apart = all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    alike = apart and all(r.alike for r in rounds)
    inside = all(p.sender * tiled.tile + p.source + p.length <= tiled.extent for r in rounds for p in r.pieces)
    clean = inside and all(r.travels or len(r.pieces) == tiled.tiles for r in rounds)
    return HaloPlan(rounds, received, alike, clean, tiled.transfer)


def _is_round(pieces: list[HaloPiece]) -> bool:
    return len({p.sender for p in pieces}) == len({p.receiver for p in pieces}) == len(pieces)


def _by(pieces: Sequence[HaloPiece], key: Callable[[HaloPiece], int]) -> list[list[HaloPiece]]:
    groups: dict[int, list[HaloPiece]] = {}
    for piece in pieces:
        groups.setdefault(key(piece), []).append(piece)
    return list(groups.values())


def _coloured(pieces: Sequence[HaloPiece]) -> list[list[HaloPiece]]:
    """Groups pieces greedily into rounds: long pieces first, so that the pieces of a round have similar lengths."""
    rounds: list[list[HaloPiece]] = []
    busy: list[tuple[set[int], set[int]]] = []
    for piece in sorted(pieces, key=lambda p: (-p.length, p.source, p.target, p.receiver)):
        free = (n for n, (out, into) in enumerate(busy) if piece.sender not in out and piece.receiver not in into)
        number = next(free, len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append((set(), set()))
        rounds[number].append(piece)
        busy[number][0].add(piece.sender)
        busy[number][1].add(piece.receiver)
    return rounds
