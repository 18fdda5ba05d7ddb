"""The states of a resharding search: intermediate tilings of an array, and the test for the goal.

A state has, per dimension, the digits that number its tiles and the padded size, and the digits over which the value is
unreduced. All digits are cut at the same places, so that digits of states are equal or disjoint (except on meshes
without common refinement).

A dimension of n elements in t tiles is padded to t * ceil(n / t). A dimension whose padding differs between source and
target has to be undivided in between, because its tiles begin at different places.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import NamedTuple

from ....ir.sharding.digit import Digit, Digits, cut, merge, product
from ....ir.sharding.tiling import Tiling

FEW_DIGITS = 4  # unit digits, up to which a search tries all ways to arrange them and all sizes of tiles


class TilingState(NamedTuple):
    """`dims`, `padded` and `unreduced` describe the tiling. `unreduced` is sorted by falling stride. `tile` are the
    resulting local dimensions.
    """

    dims: tuple[Digits, ...]
    padded: tuple[int, ...]
    unreduced: Digits
    tile: tuple[int, ...]

    def elements(self) -> int:
        """Returns the number of elements that one device holds."""
        return math.prod(self.tile)

    def arrive(self, dim: int, digits: Digits, padded: int) -> TilingState | None:
        """Returns the state with more digits at the minor end of a dimension; an undivided dimension is padded to
        `padded`.

        Returns None if the digits do not divide the padded dimension.
        """
        have = self.dims[dim]
        padded = self.padded[dim] if have else padded
        new = have + digits
        tile, rest = divmod(padded, product(new))
        return None if rest else self._with(dim, new, padded, tile)

    def leave(self, dim: int, count: int, undivided: int) -> TilingState:
        """Returns the state without the last `count` digits of a dimension; its size is `undivided` if none are left.
        """
        new = self.dims[dim][: len(self.dims[dim]) - count]
        if not new:
            return self._with(dim, new, undivided, undivided)
        return self._with(dim, new, self.padded[dim], self.padded[dim] // product(new))

    def with_unreduced(self, digits: Iterable[Digit]) -> TilingState:
        return self._replace(unreduced=tuple(sorted(digits, key=lambda d: -d.stride)))

    def with_dims(self, dims: tuple[Digits, ...]) -> TilingState:
        """Returns the state with other digits that number as many tiles per dimension."""
        return self._replace(dims=dims)

    def _with(self, dim: int, digits: Digits, padded: int, tile: int) -> TilingState:
        after = dim + 1
        return TilingState(
            (*self.dims[:dim], digits, *self.dims[after:]),
            (*self.padded[:dim], padded, *self.padded[after:]),
            self.unreduced,
            (*self.tile[:dim], tile, *self.tile[after:]),
        )


def padded_dims(dims: tuple[int, ...], tiling: Tiling) -> tuple[int, ...]:
    """Rounds each dimension up to whole tiles."""
    return tuple(n * t for n, t in zip(tiling.local_dims(dims), map(product, tiling.dims), strict=True))


def state_of(tiling: Tiling, dims: tuple[int, ...], cuts: frozenset[int]) -> TilingState:
    """Returns the state of an array with these dimensions under a tiling."""
    cut_dims = tuple(cut(d, cuts) for d in tiling.dims)
    state = TilingState(cut_dims, padded_dims(dims, tiling), (), tiling.local_dims(dims))
    return state.with_unreduced(cut(tiling.unreduced, cuts))


def _multiples(sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns 1 and the products of sizes, of single ones if there are many."""
    if len(sizes) > FEW_DIGITS:
        return tuple(dict.fromkeys((1, *sizes)))
    chosen = (combinations(sizes, count) for count in range(len(sizes) + 1))
    return tuple(dict.fromkeys(map(math.prod, chain.from_iterable(chosen))))


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The fixed data of a search: the array's dimensions, the goal, all digits and the number of devices that they
    number.

    `order` is the device order of the tilings. `memory` is the largest number of elements that a device may hold;
    without `may_replicate` no device holds the whole array. `complete` means that the source is not unreduced: then an
    unreduced value on the way has one addend that is not the identity. With `detours` digits may also go where the goal
    does not want them, which can keep bytes off slow links or avoid sending padding. If the ends have no common
    refinement, digits may be cut at the places of any of the `cut_sets`. `tiles` are the tile counts of the goal's
    dimensions, `multiples` those by which a dimension may be divided further: all, where there are few digits. `alike`
    has the same number for dimensions of one size that the goal divides alike, nothing if there are none: what is done
    to one of them might as well be done to another.
    """

    dims: tuple[int, ...]
    goal: TilingState
    unit_digits: Digits
    devices: int
    order: tuple[int, ...] | None = None
    memory: float = math.inf
    may_replicate: bool = True
    complete: bool = False
    detours: bool = False
    cut_sets: tuple[frozenset[int], ...] = ()
    tiles: tuple[int, ...] = field(init=False)
    multiples: tuple[int, ...] = field(init=False)
    even: bool = field(init=False)
    alike: tuple[int, ...] = field(init=False)
    _paddings: dict[tuple[int, int], tuple[int, ...]] = field(
        init=False, compare=False, default_factory=dict[tuple[int, int], tuple[int, ...]])  # fmt: skip

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", tuple(map(product, self.goal.dims)))
        object.__setattr__(self, "multiples", _multiples([digit.size for digit in self.unit_digits]))
        object.__setattr__(self, "even", self.goal.padded == self.dims)
        kinds = list(zip(self.dims, self.goal.dims, self.goal.padded, strict=True))
        object.__setattr__(self, "alike", tuple(map(kinds.index, kinds)) if len(set(kinds)) < len(kinds) else ())

    def unlike(self, state: TilingState, without: Collection[int] = ()) -> list[int]:
        """Returns the dimensions of a state, of those that are alike the first one."""
        if not self.alike:
            return [dim for dim in range(len(self.dims)) if dim not in without]
        kinds: dict[tuple[int, Digits, int], int] = {}
        for dim, kind in enumerate(zip(self.alike, state.dims, state.padded)):
            if dim not in without:
                kinds.setdefault(kind, dim)
        return list(kinds.values())

    def paddings(self, dim: int, tiles: int) -> tuple[int, ...]:
        """Returns the padded sizes that a dimension may have in so many tiles: the goal's, or the one that they need;
        on detours also the ones that more tiles need.
        """
        found = self._paddings.get((dim, tiles))
        if found is None:
            size, wanted = self.dims[dim], self.goal.padded[dim]
            first = wanted if wanted % tiles == 0 else tiles * -(-size // tiles)
            counts = [tiles * n for n in self.multiples if self.detours and self.devices % (tiles * n) == 0]
            found = self._paddings[dim, tiles] = tuple(dict.fromkeys([first, *(n * -(-size // n) for n in counts)]))
        return found

    def recut(self, state: TilingState) -> Iterator[TilingState]:
        """Yields states with the same tiles but other digits: 3@2 2@1 numbers the same as 2@3 3@1."""
        for places in self.cut_sets:
            dims = tuple(cut(merge(digits), places) for digits in state.dims)
            if dims != state.dims:
                yield state.with_dims(dims)

    def is_goal(self, state: TilingState) -> bool:
        """Whether a state is the wanted one. The padding counts only for divided dimensions."""
        goal = self.goal
        return (
            state.dims == goal.dims
            and state.unreduced == goal.unreduced
            and all(not d or p == q for d, p, q in zip(state.dims, state.padded, goal.padded, strict=True))
        )
