"""Lower bounds on the elements that some device receives on every path from a state to the goal.

`bound` computes one from the digits alone; it is exact for arrays that they divide evenly. `DeviceBound` enumerates all
devices: the elements that each wants, less those it holds. It is exact for uneven arrays, too, and pays in long
searches on small meshes, because the same divisions of a dimension recur in many states and their shares are cached.
"""

from __future__ import annotations

import math

import numpy as np

from ....ir.sharding.digit import Digits, disjoint, product
from ....ir.sharding.tiling import Tiling
from ..base.tiles import places
from .state import SearchSpace, TilingState

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def bound(state: TilingState, space: SearchSpace) -> float:
    """Returns a lower bound on the elements that some device receives on every path from `state` to the goal.

    For a complete value it is the largest target tile less the most that its device can hold of it. Where source and
    target divide a dimension by different digits at the same place, some device holds nothing of its tile.

    For an unreduced value with an unreduced source, each element has partial sums on n devices and is wanted on m. At
    least n + m - 2 transfers connect these (n - 1 until the sum is complete somewhere, m - 1 from there), spread over
    all devices. In addition, a device that holds only partial sums receives something for every element it wants.
    """
    goal = space.goal
    wanted = float(goal.elements())
    if any(d not in state.unreduced for d in goal.unreduced) or (space.complete and state.unreduced):
        return 0.0
    if pending := product(d for d in state.unreduced if d not in goal.unreduced) - 1:
        groups = space.devices // product(goal.unreduced)
        tiles = product(d for digits in goal.dims for d in digits)
        return max(wanted, math.prod(space.dims) * (pending - 1) / groups + math.prod(space.dims) / tiles)
    shared = 1.0
    for dim, (have, want) in enumerate(zip(state.dims, goal.dims, strict=True)):
        if have != want and space.even and state.padded[dim] == goal.padded[dim]:
            first = next(((h, w) for h, w in zip(have, want) if h != w), None)
            if first is not None and disjoint((first[0],), (first[1],)):
                return wanted
        shared *= min(state.tile[dim], goal.tile[dim])
    return wanted - shared


class DeviceBound:
    """Computes the bound for states of one `space`; call it with a state. For unreduced values it falls back to
    `bound`.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        goal = space.goal
        self.tiles = [self._tile(dim, *of) for dim, of in enumerate(zip(goal.dims, goal.tile, strict=True))]
        self.wanted = math.prod((end - start for start, end in self.tiles), start=np.ones(space.devices))
        self.shared: dict[tuple[int, Digits, int], Numbers] = {}

    def __call__(self, state: TilingState) -> float:
        if state.unreduced or self.space.goal.unreduced:
            return bound(state, self.space)
        missing = self.wanted - math.prod(map(self._share, range(len(state.dims)), state.dims, state.tile))
        return float(missing.max())

    def _share(self, dim: int, digits: Digits, tile: int) -> Numbers:
        """Returns the number of elements of a dimension that each device both holds and wants."""
        found = self.shared.get((dim, digits, tile))
        if found is None:
            start, end = self._tile(dim, digits, tile)
            first, last = self.tiles[dim]
            found = np.maximum(np.minimum(end, last) - np.maximum(start, first), 0.0)
            self.shared[dim, digits, tile] = found
        return found

    def _tile(self, dim: int, digits: Digits, tile: int) -> tuple[Numbers, Numbers]:
        """Returns where each device's part of a dimension begins and ends."""
        number = places(Tiling((digits,)), self.space.devices)[:, 0].astype(np.float64)
        size = self.space.dims[dim]
        return np.minimum(number * tile, size), np.minimum((number + 1) * tile, size)
