"""Exchange: reshards between any two tilings by sending only the missing pieces.

Where tiles of source and target begin at unrelated places (an uneven dimension under another number of tiles, meshes
without common refinement, irregular device orders), every device needs pieces of several others' tiles. `exchange.plan`
spreads the pieces over rounds. In a round a device sends and receives at most one piece, so a round is one
collective-permute of a fixed size. A device does not receive what it already holds. This module computes the pieces,
and a lower bound on the elements received. It enumerates devices, in numpy arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....ir.sharding.digit import product
from ....ir.sharding.tiling import Tiling
from ..base.moves import Exchange
from ..base.tiles import Booleans, Integers, bounds, holders, places, takes_part, tile_numbers, tiles_touched
from .quotient import quotient

_MOST_LOOKED_AT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Parts of the global array, each sent from the tile of `sender` to that of `receiver`; equal devices send nothing.

    `sender` and `receiver` are [pieces], `start` and `size` [pieces, rank].
    """

    sender: Integers
    receiver: Integers
    start: Integers
    size: Integers

    def __getitem__(self, chosen: Integers | Booleans) -> Pieces:
        return Pieces(self.sender[chosen], self.receiver[chosen], self.start[chosen], self.size[chosen])

    def __len__(self) -> int:
        return len(self.sender)

    @property
    def elements(self) -> Integers:
        return self.size.prod(-1)

    @property
    def stays(self) -> Booleans:
        return self.sender == self.receiver


def lower_bound(source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int) -> int:
    """Returns the elements that some device must receive in any plan: the largest target tile less what its device
    holds.

    A single source device must send the whole array, less its own tile if nobody else wants that. The value must not be
    unreduced. If very many devices receive different pieces, only the first ones count.
    """
    if source.device is None and target.device is None:
        part = quotient(Exchange(source, target, ((),) * len(dims), 0.0), dims, devices)
        source, target, dims = part.move.source, part.move.target, part.dims
        devices = min(part.devices, _MOST_LOOKED_AT)
    have, want = bounds(source, dims, devices), bounds(target, dims, devices)
    shared = np.minimum(have[..., 1], want[..., 1]) - np.maximum(have[..., 0], want[..., 0])
    exact = np.int64 if math.prod(dims) < 2**63 else np.float64
    held = np.prod(np.maximum(shared, 0), -1, dtype=exact) * takes_part(source, devices)
    missing = (np.prod(want[..., 1] - want[..., 0], -1, dtype=exact) - held) * takes_part(target, devices)
    if source.device is not None and target.device is None:
        copies = devices // math.prod(map(product, target.dims))
        own = np.prod(want[source.device, :, 1] - want[source.device, :, 0]) if copies == 1 else 0
        return int(max(math.prod(dims) * (devices > 1) - own, missing.max(initial=0)))
    return int(missing.max(initial=0))


def pieces(source: Tiling, want: Integers, dims: tuple[int, ...], senders: int) -> Pieces:
    """Returns the pieces of the parts that devices want (`want`, as `bounds`), each with a sender that holds it.

    A device that holds its own piece is its sender. `senders` devices hold the source; receivers of equal number are
    the same devices. Pieces that several devices hold are spread evenly over them.
    """
    tile = np.maximum(np.asarray(source.local_dims(dims), np.int64), 1)
    first, number = tiles_touched(source, want, dims)
    count = number.prod(-1)
    into = np.repeat(np.arange(len(want)), count)
    rest = np.arange(len(into)) - np.repeat(count.cumsum() - count, count)
    at = first[into]
    for dim in reversed(range(len(dims))):
        rest, place = np.divmod(rest, number[into, dim])
        at[:, dim] += place
    start = np.maximum(want[into, :, 0], at * tile)
    end = np.minimum(want[into, :, 1], (at + 1) * tile)
    sender = _senders(source, at, into, (end - start).prod(-1), senders)
    return Pieces(sender, into, start, end - start)


def _senders(source: Tiling, place: Integers, receiver: Integers, elements: Integers, devices: int) -> Integers:
    """Chooses a holder of the tile at `place` for each receiver: itself if possible, else the holders in turn.

    The turns go back and forth, by falling size, so that holders send about as much.
    """
    if source.device is not None:
        return np.full(len(receiver), source.device)
    held, wanted = tile_numbers(source, places(source, devices)), tile_numbers(source, place)
    here = (receiver < devices) & (held[np.minimum(receiver, devices - 1)] == wanted)
    turn = turns(np.where(here, -1, wanted), np.lexsort((receiver, -elements)))
    by_tile = holders(source, devices)
    copies = by_tile.shape[1]
    lap, turn = turn // copies, turn % copies
    return np.where(here, receiver, by_tile[wanted, np.where(lap % 2 == 0, turn, copies - 1 - turn)])


def turns(group: Integers, order: Integers) -> Integers:
    """Returns for each item how many of the same group come before it in this order."""
    asking = order[np.argsort(group[order], kind="stable")]
    ordered = group[asking]
    turn = np.empty(len(group), np.int64)
    turn[asking] = np.arange(len(group)) - np.searchsorted(ordered, ordered, "left")
    return turn
