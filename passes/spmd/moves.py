"""The moves of a resharding plan, and the plan.

Digits are those of `ir.digit`; dimensions count from 0. A move says all that its emission needs besides the array.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.digit import Digits
from ...ir.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Slice:
    """Every device keeps its part: `digits` number new tiles of `dim`.

    Here and below, `padded` is the size of the local dimension to be padded to before it is divided, and `size` the one
    it is cut to after it was joined.
    """

    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class AllGather:
    """`digits`, the minor ones of `dim`, go."""

    dim: int
    digits: Digits
    size: int


@dataclass(frozen=True, slots=True)
class AllToAll:
    """`digits` leave `source`, where they are the minor ones, and become the minor ones of `target`."""

    source: int
    target: int
    digits: Digits
    size: int
    padded: int


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The value is reduced over `digits`."""

    digits: Digits


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """The value is reduced over `digits`, which then number new tiles of `dim`."""

    dim: int
    digits: Digits
    padded: int


@dataclass(frozen=True, slots=True)
class Permute:
    """Tiles stay as they are and move to other devices: from tiling `source` to tiling `target`."""

    source: Tiling
    target: Tiling


@dataclass(frozen=True, slots=True)
class Exchange:
    """Every device gets the pieces of its tile under `target` that it lacks under `source`."""

    source: Tiling
    target: Tiling


Move = Slice | AllGather | AllToAll | AllReduce | ReduceScatter | Permute | Exchange


@dataclass(frozen=True, slots=True)
class Plan:
    """`received` is the number of elements that each device receives; `cost` adds the latencies.

    `replicates` marks the last resort: the whole value on every device in between. `peak` is the most elements that a
    device holds, before and after a move together.
    """

    moves: tuple[Move, ...]
    received: float
    cost: float
    replicates: bool = False
    peak: float = 0.0
