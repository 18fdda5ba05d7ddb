"""Allocates arrays of known live ranges in one block of memory.

A live range goes from one step of a plan to another. Arrays with disjoint live ranges may share memory. Larger arrays
are placed first, each in the smallest gap between those that live at the same time (greedy by size; Pisarchyk and Lee,
Efficient Memory Management for Deep Neural Net Inference, 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ...ir.analysis.lifetimes import live_sums
from ...ir.brief import brief
from ...ir.types.literal import Array
from ...ir.types.memory import ALIGNMENT, address, aligned
from ..plan.interpreter import Interpreter, Step

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Life:
    """The live range of an array, from its first to its last step, and its bytes."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """A block of `size` bytes per device that runs a plan, and the offset of each array. No layout can be smaller than
    `bound`, the most bytes that live at one step.
    """

    size: int
    offsets: tuple[int, ...]
    bound: int

    def block(self, interpreter: Interpreter, device: int) -> DeviceArena:
        """Returns the memory of a device, which the run keeps for the next."""
        blocks: dict[int, DeviceArena] = interpreter.kept.setdefault(self, {})
        if device not in blocks:
            blocks[device] = DeviceArena.of(self.size)
        return blocks[device]

    def holds(self, interpreter: Interpreter, value: Any) -> bool:
        """Whether a value is an array in the memory of some device."""
        blocks: dict[int, DeviceArena] = interpreter.kept.get(self, {})
        is_view = isinstance(value, np.ndarray) and cast(Array, value).base is not None
        return is_view and any(np.may_share_memory(cast(Array, value), block.memory) for block in blocks.values())


@brief
@dataclass(slots=True)
class DeviceArena:
    """The arena of one device: its memory, and the aligned byte where it starts. `tables` are those of the steps."""

    memory: Array
    start: int
    tables: dict[Step, Array] = field(default_factory=dict["Step", Array])

    @staticmethod
    def of(size: int) -> DeviceArena:
        memory = np.empty(size + ALIGNMENT, np.uint8)
        return DeviceArena(memory, -address(memory) % ALIGNMENT)


def arena_of(lives: Sequence[Life]) -> Arena:
    """Allocates each array in a block; offsets are multiples of `ALIGNMENT`."""
    count = len(lives)
    found = [(aligned(life.size), life.first, life.last) for life in lives]
    sizes, firsts, lasts = np.ascontiguousarray(np.array(found, np.int64).reshape(count, 3).T)
    offsets = np.zeros(count, np.int64)
    order = sorted(range(count), key=lambda n: (-sizes[n], firsts[n]))
    placed = np.zeros(count, np.int64)  # numbers of arrays, in the order of placing
    for done, number in enumerate(order):
        before = placed[:done]
        meets = before[(firsts[before] <= lasts[number]) & (lasts[before] >= firsts[number])]
        offsets[number] = _smallest_gap(offsets[meets], sizes[meets], int(sizes[number]))
        placed[done] = number
    size = int((offsets + sizes).max(initial=0))
    live = live_sums(zip(sizes.tolist(), firsts.tolist(), lasts.tolist(), strict=True), int(lasts.max(initial=0)) + 1)
    return Arena(size, tuple(offsets.tolist()), max(live, default=0))


def _smallest_gap(offsets: Integers, sizes: Integers, wanted: int) -> int:
    """Returns the start of the smallest gap of at least this many bytes between arrays, or the end of the last one."""
    order = np.argsort(offsets, kind="stable")
    ends = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), (offsets + sizes)[order]]))
    gaps = offsets[order] - ends[:-1]
    fitting = np.flatnonzero(gaps >= wanted)
    if not fitting.size:
        return int(ends[-1])
    return int(ends[fitting[np.argmin(gaps[fitting])]])
