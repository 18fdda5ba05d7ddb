"""Exchange: from any tiling to any other by sending just the missing pieces, for pairs that mesh collectives cannot do.

Where tiles of source and target begin at unrelated places (an uneven dimension under another number of tiles, meshes
without common refinement, irregular device orders), every device needs pieces of several others' tiles. The pieces are
spread over rounds, in each of which a device sends at most one and receives at most one: a round is one
collective-permute of a fixed size. What a device already holds it does not receive. This enumerates devices, so it is
for small numbers of them; the reshard plan decides.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...ir.tiling import Tiling

Box = tuple[tuple[int, int], ...]  # start and end per dimension


@dataclass(frozen=True, slots=True)
class Piece:
    """`region` of the global array, from the tile of `sender` to that of `receiver` (the same device: it has it)."""

    sender: int
    receiver: int
    region: Box

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(end - start for start, end in self.region)


@dataclass(frozen=True, slots=True)
class Round:
    """Pieces that travel together, each padded to `dims`; `local` marks the round of what devices have already."""

    pieces: tuple[Piece, ...]
    dims: tuple[int, ...]
    local: bool


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """`received` is the number of elements that a device receives, padding included, at most."""

    rounds: tuple[Round, ...]
    received: int


def places(tiling: Tiling, devices: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The index of each device's tile in each dimension, as an array [devices, rank]."""
    ids = np.arange(devices)
    if tiling.order is not None:
        ids = np.argsort(np.asarray(tiling.order))
    result = np.zeros((devices, len(tiling.dims)), np.int64)
    for dim, digits in enumerate(tiling.dims):
        for digit in digits:
            result[:, dim] = result[:, dim] * digit.size + ids // digit.stride % digit.size
    return result


def bounds(tiling: Tiling, dims: tuple[int, ...], devices: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Start and end of each device's part of the array in each dimension, as [devices, rank, 2]; empty past the end."""
    tile = np.asarray(tiling.local_dims(dims), np.int64)
    start = np.minimum(places(tiling, devices) * tile, np.asarray(dims))
    end = np.minimum(start + tile, np.asarray(dims))
    return np.stack([start, end], -1)


def lower_bound(source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int) -> int:
    """Elements that some device must receive, however it is done: the largest target tile less what it holds of it.

    For values that are not unreduced.
    """
    have, want = bounds(source, dims, devices), bounds(target, dims, devices)
    shared = np.minimum(have[..., 1], want[..., 1]) - np.maximum(have[..., 0], want[..., 0])
    missing = np.prod(want[..., 1] - want[..., 0], -1) - np.prod(np.maximum(shared, 0), -1)
    return int(missing.max(initial=0))


@lru_cache(maxsize=4096)
def plan_exchange(source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int) -> ExchangePlan:
    """The rounds that bring every device its target tile. Neither tiling may be unreduced."""
    kept, sent = pieces(source, target, dims, devices, devices)
    rounds = [_round(kept, local=True)] if kept else []
    rounds += [_round(found, local=False) for found in _colour(sent)]
    received = sum(math.prod(r.dims) for r in rounds if not r.local)
    return ExchangePlan(tuple(rounds), received)


def _round(found: list[Piece], local: bool) -> Round:
    return Round(tuple(found), tuple(map(max, zip(*(p.dims for p in found), strict=True))), local)


def pieces(
    source: Tiling, target: Tiling, dims: tuple[int, ...], senders: int, receivers: int
) -> tuple[list[Piece], list[Piece]]:
    """What devices hold of their target tiles already, and what they need from others, with a holder for each piece.

    `senders` devices hold the source and `receivers` want the target; devices of equal number are the same. Pieces that
    several devices hold are spread evenly over them.
    """
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, place in enumerate(places(source, senders).tolist()):
        holders.setdefault(tuple(place), []).append(device)
    tile = source.local_dims(dims)
    load = [0] * senders
    kept: list[Piece] = []
    sent: list[Piece] = []
    for receiver, box in enumerate(bounds(target, dims, receivers).tolist()):
        if any(start >= end for start, end in box):
            continue
        ranges = [range(s // t, -(-e // t)) for (s, e), t in zip(box, tile, strict=True)]
        for place in itertools.product(*ranges):
            region = tuple(
                (max(s, i * t), min(e, (i + 1) * t)) for (s, e), i, t in zip(box, place, tile, strict=True)
            )
            here = holders[place]
            if receiver in here:
                kept.append(Piece(receiver, receiver, region))
                continue
            sender = min(here, key=lambda d: (load[d], (d - receiver) % senders))
            load[sender] += 1
            sent.append(Piece(sender, receiver, region))
    return kept, sent


def _colour(sent: list[Piece]) -> list[list[Piece]]:
    """Rounds in which nobody sends or receives twice; large pieces first, so that sizes within a round are alike."""
    rounds: list[list[Piece]] = []
    busy: list[tuple[set[int], set[int]]] = []
    for piece in sorted(sent, key=lambda p: (-math.prod(p.dims), p.dims, p.receiver, p.sender)):
        free = (n for n, (out, into) in enumerate(busy) if piece.sender not in out and piece.receiver not in into)
        number = next(free, len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append((set(), set()))
        rounds[number].append(piece)
        busy[number][0].add(piece.sender)
        busy[number][1].add(piece.receiver)
    return rounds
