"""Runs many native steps of a plan by few calls of machine code.

A table is cut into pieces of some work each. Between pieces messages in flight progress, which MPI moves only when
called.

The arrays between native steps lie in an arena, a block of memory per device and plan that is allocated once and kept
for later runs. Arrays that others hold (operands, results of the plan, results of other steps) lie outside of it: their
addresses are filled in before each run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...codegen.native.run_loop import code
from ...codegen.native.step import NativeStep, StridedLayout
from ...cost.host import HOST
from ...ir.diagnostics import InternalError
from ...ir.graph.instruction import Instruction
from ...ir.types.literal import Array
from ...ir.types.memory import address, aligned_array
from ..plan.interpreter import Frame, Interpreter, Step, StepPlan
from ..plan.updates import is_owned
from .addresses import copied, is_dense
from .arena import Arena, DeviceArena
from .workers import run_all

ARENA = 0  # the root of arrays in the arena; others are buffers of the frame


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """The place of an array: a root's memory, and the `offset` in elements from its start."""

    root: int
    offset: int
    layout: StridedLayout
    dtype: np.dtype[Any]

    @property
    def byte_offset(self) -> int:
        return self.offset * self.dtype.itemsize

    @property
    def byte_size(self) -> int:
        return math.prod(self.layout.dims) * self.dtype.itemsize

    def element(self, number: int) -> ArrayPlace:
        """Returns the place of an element of a scalar or a vector."""
        strides = self.layout.strides
        offset = self.offset + (number * strides[0] if strides else 0)
        return ArrayPlace(self.root, offset, StridedLayout((), ()), self.dtype)

    def array(self, memory: Any, start: int = 0) -> Array:
        """Returns the array, in memory whose byte `start` is that of the root."""
        strides = tuple(s * self.dtype.itemsize for s in self.layout.strides)
        return np.ndarray(self.layout.dims, self.dtype, memory, start + self.byte_offset, strides)


@dataclass(frozen=True, slots=True)
class Entry:
    """A native step with the places of its operands, results and scratch arrays."""

    step: NativeStep
    places: tuple[ArrayPlace, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """A dense array in a buffer of the frame, with its size and type. The step itself allocates `is_made` ones. Those
    with a buffer `taken` begin with the array there, or are that array itself if it belongs to that buffer alone.
    """

    buffer: int
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    is_made: bool = False
    taken: int | None = None

    def is_all(self, place: ArrayPlace) -> bool:
        """Whether a place is that of the whole array."""
        return place.root == self.buffer and place.layout.dims == self.dims and place.layout.is_dense


class TableStep(Step):
    """Runs native steps, then puts the arrays that other steps read into their buffers (`exports`)."""

    __slots__ = (
        "_fixed", "_indices", "_offsets", "_pieces", "_places", "_starts", "entries", "exports", "memory", "outside",
        "touched", "wholes",
    )  # fmt: skip

    def __init__(
        self, instruction: Instruction, entries: Sequence[Entry], outside: Sequence[Outside],
        exports: Sequence[tuple[int, ArrayPlace]], memory: Arena,
    ) -> None:  # fmt: skip
        reads = [o.buffer if o.taken is None else o.taken for o in outside if o.taken is not None or not o.is_made]
        made = [o.buffer for o in outside if o.is_made]
        super().__init__(instruction, reads, [*made, *(buffer for buffer, _ in exports)])
        self.entries = tuple(entries)
        self.outside = tuple(sorted(outside, key=lambda o: o.taken is None))  # what is taken must not be held before
        self.exports = tuple(exports)
        self.wholes = {buffer: o.buffer for buffer, place in exports for o in self.outside if o.is_all(place)}
        self.memory = memory
        touched = [sum(place.byte_size for place in entry.places) for entry in self.entries]
        self.touched = sum(touched)  # bytes that the native steps read and write
        self._pieces = pieces(touched)
        self._lay_out()

    @property
    def size(self) -> int:
        return len(self.entries)

    def _lay_out(self) -> None:
        """Lays out the blocks of all entries contiguously."""
        numbers = {ARENA: 0} | {o.buffer: n for n, o in enumerate(self.outside, 1)}
        fixed: list[int] = []
        places: list[tuple[int, int, int]] = []
        starts: list[int] = []
        for entry in self.entries:
            starts.append(len(fixed))
            for place in entry.places:
                places.append((len(fixed), numbers[place.root], place.byte_offset))
                fixed.append(0)
            fixed += entry.step.words
        found = np.array(places, np.int64).reshape(-1, 3)
        self._fixed = np.array(fixed, np.int64)
        self._starts = np.array(starts, np.int64)
        self._places, self._indices, self._offsets = (np.ascontiguousarray(column) for column in found.T)

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        blocks = [self.memory.block(interpreter, frame[0]) for frame in frames]
        arrays = [self._arrays(frame) for frame in frames]
        if self.entries:
            tables = [self._table(block, held) for block, held in zip(blocks, arrays, strict=True)]
            self._run_pieces(tables, interpreter)
        for frame, block, held in zip(frames, blocks, arrays, strict=True):
            self.export(frame, block, held)
            for i in self.dead:
                frame[i] = None

    def _run_pieces(self, tables: Sequence[int], interpreter: Interpreter) -> None:
        """Runs the tables of all devices, given by their addresses."""
        run, fabric = code("run").run, interpreter.fabric
        offsets = [8 * (number + 2 * first) for number, (first, _) in enumerate(self._pieces)]
        groups = [[offset] for offset in offsets] if fabric.needs_progress else [offsets]

        def run_group(group: Sequence[int], table: int) -> None:
            for offset in group:
                run(table + offset)

        for group in groups:
            run_all(partial(run_group, group), tables, self.touched * len(tables) // len(groups))
            fabric.progress()

    def _arrays(self, frame: Frame) -> dict[int, Array]:
        """Returns the arrays outside of the arena, dense."""
        held: dict[int, Array] = {}
        for o in self.outside:
            if o.taken is not None:
                whole = frame[o.taken]
                frame[o.buffer] = whole if self._may_take(o.taken, frame) else copied(np.asarray(whole))
            elif o.is_made:
                frame[o.buffer] = aligned_array(o.dims, o.dtype)
            x = np.asarray(frame[o.buffer])  # numpy's kernels may return scalars, which are no arrays
            if x.shape != o.dims or x.dtype != o.dtype:
                raise InternalError(f"native code for {o.dtype}{list(o.dims)} got {x.dtype}{list(x.shape)}")
            held[o.buffer] = x
            if not is_dense(x):
                held[o.buffer] = copied(x)
        return held

    def _may_take(self, buffer: int, frame: Frame) -> bool:
        """Whether an array may be changed: no later step reads it, and nobody else."""
        return buffer in self.dead and is_owned(frame, buffer) and is_dense(frame[buffer])

    def export(self, frame: Frame, block: DeviceArena, held: dict[int, Array]) -> None:
        """Puts the arrays that other steps read into their buffers."""
        for buffer, place in self.exports:
            if place.root == ARENA:
                frame[buffer] = place.array(block.memory, block.start)
            elif buffer in self.wholes:
                frame[buffer] = held[place.root]
            else:
                frame[buffer] = place.array(held[place.root])

    def table(self, block: DeviceArena, held: dict[int, Array]) -> Array:
        """Returns a new table of all native steps, in one piece."""
        return self._fill(self._words([(0, len(self.entries))]), block, held)

    def _table(self, block: DeviceArena, held: dict[int, Array]) -> int:
        """Returns the address of the table of a device, all pieces of it."""
        words = block.tables.get(self)
        if words is None:
            words = block.tables[self] = self._words(self._pieces)
        return address(self._fill(words, block, held))

    def _words(self, pieces: Sequence[tuple[int, int]]) -> Array:
        """Returns the words of a table without the addresses of arrays: each piece is the number of its steps and their
        functions and blocks, which come last.
        """
        head = len(pieces) + 2 * len(self.entries)
        words = np.concatenate([np.empty(head, np.int64), self._fixed])
        functions = np.array([entry.step.function for entry in self.entries], np.int64)
        pairs = np.stack([functions, address(words) + 8 * (head + self._starts)], 1)
        for number, (first, last) in enumerate(pieces):
            start = number + 2 * first
            words[start] = last - first
            words[start + 1 : start + 1 + 2 * (last - first)] = pairs[first:last].reshape(-1)
        return words

    def addresses(self, words: Array) -> Array:
        """Returns the positions of the addresses of arrays in the words of a table."""
        return len(words) - len(self._fixed) + self._places

    def _fill(self, words: Array, block: DeviceArena, held: dict[int, Array]) -> Array:
        """Fills in the addresses of arrays."""
        bases = [address(block.memory) + block.start, *(address(held[o.buffer]) for o in self.outside)]
        words[self.addresses(words)] = np.array(bases, np.int64)[self._indices] + self._offsets
        return words


class GuardedStep(Step):
    """Runs a copy of another step, and copies those results that are views of the arena, which later steps reuse. The
    copied step frees the arrays that the plan with tables no longer reads: tables may read an array later than its own
    steps did.
    """

    __slots__ = ("inner", "memory")

    def __init__(self, inner: Step, memory: Arena) -> None:
        super().__init__(inner.instruction, inner.reads, inner.writes)
        self.inner = copy(inner)
        self.memory = memory

    @property
    def acting(self) -> Step:
        return self.inner

    def plans(self) -> tuple[StepPlan, ...]:
        return self.inner.plans()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        self.inner.dead = self.dead
        self.inner.run(frames, interpreter)
        for frame in frames:
            for i in self.writes:
                if self.memory.holds(interpreter, frame[i]):
                    frame[i] = frame[i].copy()


def pieces(touched: Sequence[int]) -> list[tuple[int, int]]:
    """Cuts steps that touch so many bytes into pieces: ranges of a first step and an end."""
    found: list[tuple[int, int]] = []
    first = size = 0
    for number, more in enumerate(touched, 1):
        size += more
        if size >= HOST.piece or number == len(touched):
            found.append((first, number))
            first, size = number, 0
    return found


def arenas(plan: StepPlan) -> list[Arena]:
    """Returns the arenas of an arranged plan and of the plans of its loops and branches."""
    steps = (step for inner in plan.all_plans() for step in inner.steps)
    return list(dict.fromkeys(step.memory for step in steps if isinstance(step, TableStep | GuardedStep)))
