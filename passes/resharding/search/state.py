"""The states of a resharding: how an array is divided in between, and how far that is from the goal.

A state says, per dimension, which digits number its tiles and how long the padded dimension is, and over which digits
the value is still unreduced. All digits are cut at the same places, so that digits of states are equal or disjoint
(except on meshes without common refinement).

Padding: a dimension of n elements in t tiles is padded to t * ceil(n / t). A dimension whose padding differs between
source and target has to be whole in between, for its tiles begin at other places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ....ir.sharding.digit import Digit, Digits, cut, merge, product
from ....ir.sharding.tiling import Tiling


class State(NamedTuple):
    """`unreduced` is sorted by falling stride. `tile` are the dimensions on one device, as the others say."""

    dims: tuple[Digits, ...]
    padded: tuple[int, ...]
    unreduced: Digits
    tile: tuple[int, ...]

    def elements(self) -> int:
        """Elements that one device holds."""
        return math.prod(self.tile)

    def arrive(self, dim: int, digits: Digits, padded: int) -> State | None:
        """The state with further digits at the minor end of a dimension, padded so if it was whole.

        None if its padding does not allow them.
        """
        have = self.dims[dim]
        padded = self.padded[dim] if have else padded
        new = have + digits
        tile, rest = divmod(padded, product(new))
        return None if rest else self._with(dim, new, padded, tile)

    def leave(self, dim: int, count: int, undivided: int) -> State:
        """The state without the last `count` digits of a dimension; of size `undivided` if none are left."""
        new = self.dims[dim][: len(self.dims[dim]) - count]
        if not new:
            return self._with(dim, new, undivided, undivided)
        return self._with(dim, new, self.padded[dim], self.padded[dim] // product(new))

    def with_unreduced(self, digits: Iterable[Digit]) -> State:
        return self._replace(unreduced=tuple(sorted(digits, key=lambda d: -d.stride)))

    def with_dims(self, dims: tuple[Digits, ...]) -> State:
        """As many tiles per dimension, numbered by other digits."""
        return self._replace(dims=dims)

    def _with(self, dim: int, digits: Digits, padded: int, tile: int) -> State:
        after = dim + 1
        return State(
            (*self.dims[:dim], digits, *self.dims[after:]),
            (*self.padded[:dim], padded, *self.padded[after:]),
            self.unreduced,
            (*self.tile[:dim], tile, *self.tile[after:]),
        )


def padded_dims(dims: tuple[int, ...], tiling: Tiling) -> tuple[int, ...]:
    """Each dimension rounded up to whole tiles."""
    return tuple(n * t for n, t in zip(tiling.local_dims(dims), map(product, tiling.dims), strict=True))


def state_of(tiling: Tiling, dims: tuple[int, ...], cuts: frozenset[int]) -> State:
    """The state of an array of these dimensions that is tiled so."""
    cut_dims = tuple(cut(d, cuts) for d in tiling.dims)
    state = State(cut_dims, padded_dims(dims, tiling), (), tiling.local_dims(dims))
    return state.with_unreduced(cut(tiling.unreduced, cuts))


@dataclass(frozen=True, slots=True)
class Space:
    """What a search moves in: the array's dimensions, where it goes, all digits and how many devices they number.

    `order` is that of the tilings, `memory` the most elements that a device may hold, and without `may_replicate` it
    never holds the whole array. If the source is `complete`, what is unreduced on the way has one addend that counts.
    With `detours` digits may also go where the goal does not want them: that can spare slow levels bytes, or padding
    from being sent. If the ends have no common refinement, digits may be cut as either end needs it, at the places of
    one of the `cut_sets`. `tiles` are those of the goal's dimensions.
    """

    dims: tuple[int, ...]
    goal: State
    unit_digits: Digits
    devices: int
    order: tuple[int, ...] | None = None
    memory: float = math.inf
    may_replicate: bool = True
    complete: bool = False
    detours: bool = False
    cut_sets: tuple[frozenset[int], ...] = ()
    tiles: tuple[int, ...] = field(init=False)
    even: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", tuple(map(product, self.goal.dims)))
        object.__setattr__(self, "even", self.goal.padded == self.dims)

    def recut(self, state: State) -> Iterator[State]:
        """The same tiles by other digits: 3@2 2@1 numbers the same as 2@3 3@1."""
        for places in self.cut_sets:
            dims = tuple(cut(merge(digits), places) for digits in state.dims)
            if dims != state.dims:
                yield state.with_dims(dims)

    def is_goal(self, state: State) -> bool:
        """Whether this is how the value is wanted; the padding of a dimension counts where it is divided."""
        goal = self.goal
        return (
            state.dims == goal.dims
            and state.unreduced == goal.unreduced
            and all(not d or p == q for d, p, q in zip(state.dims, state.padded, goal.padded, strict=True))
        )
