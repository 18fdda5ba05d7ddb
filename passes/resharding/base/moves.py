"""The moves of a resharding plan, the plan, and the record of a resharding in a program.

Digits are those of `ir.sharding.digit`; dimensions count from 0. A move contains all that its emission needs except the
array. `kind` is the opcode of its collectives, None for moves without communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from ....ir.sharding.digit import Digits, product
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape


@dataclass(frozen=True, slots=True)
class SliceMove:
    """Keeps each device's part: `digits` number the new tiles of `dim`.

    Here and below, `padded` is the padded size of the local dimension before it is divided, and `size` the size to
    which a joined dimension is cut.
    """

    kind: ClassVar[None] = None
    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class AllGatherMove:
    """Removes `digits`, the minor ones of `dim`, by joining tiles."""

    kind: ClassVar[Literal["all-gather"]] = "all-gather"
    dim: int
    digits: Digits
    size: int


class Shift(NamedTuple):
    """Moves `digits` from the minor end of dimension `source` to the minor end of `target`."""

    source: int
    target: int
    digits: Digits


@dataclass(frozen=True, slots=True)
class AllToAllMove:
    """Performs several shifts in one collective. No dimension is the source of one shift and the target of another.

    `padded` are the sizes of all local dimensions before they are divided, `sizes` the final ones.
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
class AllReduceMove:
    """Reduces the value over `digits`."""

    kind: ClassVar[Literal["all-reduce"]] = "all-reduce"
    digits: Digits


@dataclass(frozen=True, slots=True)
class ReduceScatterMove:
    """Reduces the value over `digits`, which then number new tiles of `dim`."""

    kind: ClassVar[Literal["reduce-scatter"]] = "reduce-scatter"
    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class Mask:
    """Makes the value unreduced over `digits`: the first of the devices that differ in them keeps it.

    The other devices hold the identity of the reduction. With a `device` only that device keeps the value, bit by bit.
    The digits refer to the device order `order`, even if another order numbered the tiles before.
    """

    kind: ClassVar[None] = None
    digits: Digits
    order: tuple[int, ...] | None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Turns a division into a partial sum: each device embeds its tile of `dim` in an array of identities.

    `digits` leave `dim`, which gets `size` elements, and the value becomes unreduced over them.
    """

    kind: ClassVar[None] = None
    dim: int
    digits: Digits
    size: int


@dataclass(frozen=True, slots=True)
class Permute:
    """Moves whole tiles to other devices, from tiling `source` to tiling `target`."""

    kind: ClassVar[Literal["collective-permute"]] = "collective-permute"
    source: Tiling
    target: Tiling


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends each device the pieces of its tile under `target` that it lacks under `source`.

    `inner` digits divide the target tile further: a device then receives only its part of the tile. `latency` is the
    cost of one more collective, in elements received.
    """

    kind: ClassVar[Literal["collective-permute"]] = "collective-permute"
    source: Tiling
    target: Tiling
    inner: tuple[Digits, ...]
    latency: float

    def local_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the local dimensions after the exchange, for an array with these global dimensions."""
        return tuple(-(-n // product(d)) for n, d in zip(self.target.local_dims(dims), self.inner, strict=True))


Move = SliceMove | AllGatherMove | AllToAllMove | AllReduceMove | ReduceScatterMove | Mask | Spread | Permute | Exchange


@dataclass(frozen=True, slots=True)
class ReshardPlan:
    """A sequence of moves. Each device receives `received` elements.

    `cost` is the time of the moves (see `cost.machine`). `peak` is the largest number of elements that a device holds,
    counting the array before and after a move together. Only a plan that `may_replicate` replicates a value that
    neither end replicates; it exists where there is no other plan.
    """

    moves: tuple[Move, ...]
    received: float
    cost: float
    peak: float = 0.0
    may_replicate: bool = False


@dataclass(frozen=True, slots=True)
class Resharding:
    """A value of this global shape that moved from one tiling to another; `cause` as its collectives carry it."""

    cause: str
    shape: Shape
    source: Tiling
    target: Tiling
    plan: ReshardPlan
