"""The moves of a resharding plan, and the plan.

Digits are those of `ir.digit`; dimensions count from 0. A move says all that its emission needs besides the array, and
the kind of its collectives (None: it needs none).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ....ir.sharding.digit import Digits, product
from ....ir.sharding.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Slice:
    """Every device keeps its part: `digits` number new tiles of `dim`.

    Here and below, `padded` is the size of the local dimension to be padded to before it is divided, and `size` the one
    it is cut to after it was joined.
    """

    kind: ClassVar[None] = None
    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class AllGather:
    """`digits`, the minor ones of `dim`, go."""

    kind: ClassVar[Literal["all-gather"]] = "all-gather"
    dim: int
    digits: Digits
    size: int


@dataclass(frozen=True, slots=True)
class Shift:
    """`digits` leave dimension `source`, where they are the minor ones, and become the minor ones of `target`."""

    source: int
    target: int
    digits: Digits


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Shifts at once, in one collective over the digits of all. No dimension is source of one and target of another.

    `padded` are the sizes of all local dimensions before they are divided, `sizes` those in the end.
    """

    kind: ClassVar[Literal["all-to-all"]] = "all-to-all"
    shifts: tuple[Shift, ...]
    padded: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def digits(self) -> Digits:
        """The digits of all shifts: the group of the collective."""
        return tuple(d for shift in self.shifts for d in shift.digits)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The value is reduced over `digits`."""

    kind: ClassVar[Literal["all-reduce"]] = "all-reduce"
    digits: Digits


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """The value is reduced over `digits`, which then number new tiles of `dim`."""

    kind: ClassVar[Literal["reduce-scatter"]] = "reduce-scatter"
    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class Mask:
    """The value becomes unreduced over `digits`: one of those that agree on all other digits keeps it.

    The others hold the identity of the reduction. With a `device` only that one keeps the value, bit by bit. The
    digits are of this device `order`, also where another one numbered the tiles until then.
    """

    kind: ClassVar[None] = None
    digits: Digits
    order: tuple[int, ...] | None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """`digits` leave `dim`, which becomes `size`, and the value is unreduced over them: every tile among identities."""

    kind: ClassVar[None] = None
    dim: int
    digits: Digits
    size: int


@dataclass(frozen=True, slots=True)
class Permute:
    """Tiles stay as they are and move to other devices: from tiling `source` to tiling `target`."""

    kind: ClassVar[Literal["collective-permute"]] = "collective-permute"
    source: Tiling
    target: Tiling


@dataclass(frozen=True, slots=True)
class Exchange:
    """Every device gets the pieces of its tile under `target` that it lacks under `source`.

    With `inner` digits in some dimensions, only its part of the tile when that is divided further by them. `latency` is
    what another collective is worth, in elements received.
    """

    kind: ClassVar[Literal["collective-permute"]] = "collective-permute"
    source: Tiling
    target: Tiling
    inner: tuple[Digits, ...]
    latency: float

    def local_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """What a device holds afterwards of an array with these dimensions."""
        return tuple(-(-n // product(d)) for n, d in zip(self.target.local_dims(dims), self.inner, strict=True))


Move = Slice | AllGather | AllToAll | AllReduce | ReduceScatter | Mask | Spread | Permute | Exchange


@dataclass(frozen=True, slots=True)
class Plan:
    """`received` is the number of elements that each device receives.

    `cost` is the time of the moves (see `cost.machine`). `peak` is the most elements that a device holds, before and
    after a move together. Only a plan that `may_replicate`, for lack of another way, makes a value whole on the way
    that neither end holds whole.
    """

    moves: tuple[Move, ...]
    received: float
    cost: float
    peak: float = 0.0
    may_replicate: bool = False
