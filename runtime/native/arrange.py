"""Arranges a plan for machine code: turns adjacent native steps into tables, drops views, and allocates the values
between native steps in an arena.

The order of steps stays. Other steps (collectives, control flow, ops that only numpy computes) stand between tables and
access arrays of the frame, as in every plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...codegen.native.lowerings import Lowerings
from ...codegen.native.native_steps import native_parts
from ...codegen.native.put import put_step, start_indices
from ...codegen.native.step import StridedLayout
from ...codegen.native.views import layout_before, view_of
from ...ir.brief import brief
from ...ir.graph.attributes import Dims
from ...ir.graph.instruction import Instruction
from ...ir.types.shape import Shape
from ..plan.interpreter import Step, StepPlan, find_last_uses
from ..plan.steps import ComputeStep, StartStep, TupleComputeStep, WaitStep, WhileStep
from .arena import Arena, Life, arena_of
from .loop import native_loop
from .table import ARENA, ArrayPlace, Entry, GuardedStep, Outside, TableStep


@brief
@dataclass(slots=True)
class _Segment:
    """Adjacent native steps, and the buffers whose places they determine."""

    instruction: Instruction
    entries: list[Entry] = field(default_factory=list[Entry])
    found: list[int] = field(default_factory=list[int])


@brief
@dataclass(slots=True)
class _Arranged:
    """A plan while it is arranged. Native results are roots, named by their buffers, and so are scratch arrays, by
    negative numbers; `begun` has their bytes and first step. `last` has the last step that reads each buffer, `until`
    that of each root and its views. Other steps have seen the `shared` roots, of which they may have made views.
    `taken` are the buffers of arrays that roots begin with, to be updated. With steps `apart` each has a table of its
    own, and leaves its results in the frame.
    """

    plan: StepPlan
    lowerings: Lowerings
    apart: bool
    places: dict[int, ArrayPlace] = field(default_factory=dict[int, ArrayPlace])
    begun: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    roots: dict[int, Outside] = field(default_factory=dict[int, Outside])
    parts: list[_Segment | Step] = field(default_factory=list["_Segment | Step"])
    made: set[int] = field(default_factory=set[int])
    readers: dict[int, list[Step]] = field(default_factory=dict[int, list[Step]])
    last: dict[int, float] = field(default_factory=dict[int, float])
    until: dict[int, float] = field(default_factory=dict[int, float])
    shared: set[int] = field(default_factory=set[int])
    taken: dict[int, int] = field(default_factory=dict[int, int])
    scratch: int = 0

    def arrange(self) -> None:
        """Partitions the steps into native ones and others."""
        held = _held(self.plan)
        for time, step in enumerate(self.plan.steps):
            for buffer in set(step.reads):
                self.readers.setdefault(buffer, []).append(step)
            self.last |= dict.fromkeys((*step.reads, *held.get(step, ())), time)
        self.last |= dict.fromkeys(self.plan.results, math.inf)
        for time, step in enumerate(self.plan.steps):
            if not self._is_native(step, time):
                self.parts.append(step)
                self.shared.update(self.places[b].root for b in step.reads if b in self.places)

    def lives(self) -> dict[int, Life]:
        """Returns the live ranges of the arrays in the arena. Results are their reader's: they lie outside."""
        ends = {root: max(first, self.until.get(root, -1)) for root, (_, first) in self.begun.items()}
        return {root: Life(size, first, int(ends[root])) for root, (size, first) in self.begun.items()
                if ends[root] < math.inf and (root < 0 or not self.apart)}  # fmt: skip

    def _is_native(self, step: Step, time: int) -> bool:
        """Adds a step to the current segment if it is a view or has machine code; returns whether it did."""
        instruction = step.instruction
        if not isinstance(step, ComputeStep | TupleComputeStep) or not _is_static(instruction):
            return False
        shapes = [leaf for o in instruction.operands for leaf in o.shape.leaves()]
        operands = [self._place(b, shape) for b, shape in zip(step.reads, shapes, strict=True)]
        return any(add(step, operands, time) for add in (self._view, self._update, self._compute))

    def _place(self, buffer: int, shape: Shape) -> ArrayPlace:
        """Returns the place of an operand; an array from outside of tables is its own root, and dense."""
        if buffer not in self.places:
            self._add_root(buffer, shape)
        return self.places[buffer]

    def _wanted(self, step: Step) -> StridedLayout | None:
        """Returns the layout that makes the transposition of a result dense, if nothing else reads the result."""
        readers = self.readers.get(step.writes[0], ()) if len(step.writes) == 1 else ()
        if len(readers) != 1 or not isinstance(readers[0], ComputeStep) or not _is_static(readers[0].instruction):
            return None
        return None if step.writes[0] in self.plan.results else layout_before(readers[0].instruction)

    def _add_root(self, buffer: int, shape: Shape, layout: StridedLayout | None = None) -> ArrayPlace:
        dtype = _type_of(shape)
        self.roots[buffer] = Outside(buffer, shape.dims, dtype)
        return self._lies(buffer, ArrayPlace(buffer, 0, layout or StridedLayout.dense(shape.dims), dtype))

    def _lies(self, buffer: int, place: ArrayPlace) -> ArrayPlace:
        """Records the place of a value, and how long its root is read."""
        self.places[buffer] = place
        self.until[place.root] = max(self.until.get(place.root, -1), self.last.get(buffer, -1))
        return place

    def _view(self, step: Step, operands: Sequence[ArrayPlace], time: int) -> bool:
        found = view_of(step.instruction, operands[0].layout) if len(operands) == 1 else None
        if found is None:
            return False
        whole, (offset, layout) = operands[0], found
        self._segment(step.instruction).found.append(step.writes[0])
        self._lies(step.writes[0], ArrayPlace(whole.root, whole.offset + offset, layout, whole.dtype))
        return True

    def _update(self, step: Step, operands: Sequence[ArrayPlace], time: int) -> bool:
        """Adds an update of a slice: of the array itself if nothing reads that later, else of a copy."""
        starts = start_indices(step.instruction)
        if starts is None:
            return False
        segment, part = self._segment(step.instruction), operands[1]
        whole = self._updated(step, operands, time)
        if whole is None:
            whole = self._result(step.writes[0], step.instruction.shape, time)
            copy = put_step(operands[0].layout, whole.layout, whole.dtype.itemsize)
            segment.entries.append(Entry(copy, (operands[0], whole)))
        segment.found += step.writes
        window = replace(whole, layout=StridedLayout(part.layout.dims, whole.layout.strides))
        places = [operands[start.operand].element(start.element) for start in starts]
        put = put_step(part.layout, window.layout, whole.dtype.itemsize, starts)
        segment.entries.append(Entry(put, (part, window, *places)))
        return True

    def _updated(self, step: Step, operands: Sequence[ArrayPlace], time: int) -> ArrayPlace | None:
        """Returns the place of an array that an update changes itself, as that of its result; None if the array or a
        view of it is read later. One from outside of tables becomes the result if it belongs to its buffer alone.
        """
        (whole, *others), (buffer, *_), result = operands, step.reads, step.writes[0]
        if self.until[whole.root] > time or any(other.root == whole.root for other in others):
            return None
        if whole.root in self.made:
            is_free = whole.layout.is_dense and whole.root not in self.shared
            return self._lies(result, whole) if is_free else None
        if whole.root != buffer:
            return None
        self.made.add(result)
        self.taken[result] = buffer
        return self._add_root(result, step.instruction.shape)

    def _compute(self, step: ComputeStep | TupleComputeStep, operands: Sequence[ArrayPlace], time: int) -> bool:
        layouts = [o.layout for o in operands]
        native = native_parts(step.instruction, layouts, self.lowerings, self._wanted(step))
        if native is None:
            return False
        segment = self._segment(step.instruction)
        leaves = step.instruction.shape.leaves()
        results = [self._result(b, leaf, time, native.result) for b, leaf in zip(step.writes, leaves, strict=True)]
        segment.found += step.writes
        arrays = [*operands, *results, *(self._scratch(s.dims, _type_of(s), time) for s in native.temporaries)]
        for part, numbers in native.steps:
            scratch = [self._scratch((size,), np.dtype(np.uint8), time) for size in part.scratch]
            segment.entries.append(Entry(part, (*(arrays[n] for n in numbers), *scratch)))
        return True

    def _result(self, buffer: int, shape: Shape, time: int, layout: StridedLayout | None = None) -> ArrayPlace:
        """Returns the place of a new array that a native step makes."""
        place = self._add_root(buffer, shape, layout)
        self.made.add(buffer)
        self.begun[buffer] = place.byte_size, time
        return place

    def _scratch(self, dims: Dims, dtype: np.dtype[Any], time: int) -> ArrayPlace:
        self.scratch -= 1
        place = ArrayPlace(self.scratch, 0, StridedLayout.dense(dims), dtype)
        self.begun[self.scratch] = place.byte_size, time
        return place

    def _segment(self, instruction: Instruction) -> _Segment:
        last = self.parts[-1] if self.parts else None
        if self.apart or not isinstance(last, _Segment):
            last = _Segment(instruction)
            self.parts.append(last)
        return last


def _held(plan: StepPlan) -> dict[Step, tuple[int, ...]]:
    """Returns the operands that each wait for a collective still reads."""
    started = {step.writes[0]: step.reads for step in plan.steps if isinstance(step, StartStep)}
    return {step: started.get(step.reads[0], ()) for step in plan.steps if isinstance(step, WaitStep)}


def arranged(
    plan: StepPlan, lowerings: Lowerings, apart: bool = False, known: dict[int, StepPlan] | None = None
) -> StepPlan:
    """Replaces the native steps of a plan by tables, with steps `apart` each by its own. `known` are those that are
    arranged already, by the identities of the plans: one that is called twice is arranged once.
    """
    known = {} if known is None else known
    if id(plan) in known:
        return known[id(plan)]
    work = _Arranged(plan, lowerings, apart)
    work.arrange()
    lives = work.lives()
    memory = arena_of(list(lives.values()))
    in_arena = dict(zip(lives, memory.offsets, strict=True))
    wanted = {b for step in work.parts if isinstance(step, Step) for b in step.reads}.union(plan.results)
    if apart:
        wanted.update(work.places)
    steps = list(_steps(work, in_arena, wanted, memory, known))
    result = known[id(plan)] = replace(plan, steps=steps)
    find_last_uses(result)
    return result


def _steps(
    work: _Arranged, in_arena: dict[int, int], wanted: set[int], memory: Arena, known: dict[int, StepPlan]
) -> Iterator[Step]:
    def placed(place: ArrayPlace) -> ArrayPlace:
        if place.root not in in_arena:
            return place
        start = in_arena[place.root] // place.dtype.itemsize
        return ArrayPlace(ARENA, start + place.offset, place.layout, place.dtype)

    for part in work.parts:
        if isinstance(part, Step):
            step = part.with_plans([arranged(p, work.lowerings, work.apart, known) for p in part.plans()])
            if isinstance(step, WhileStep) and not work.apart:
                step = native_loop(step)
            yield GuardedStep(step, memory)
            continue
        entries = [Entry(e.step, tuple(placed(p) for p in e.places)) for e in part.entries]
        made = {b for b in part.found if b in work.made and b not in in_arena}
        exports = [(b, placed(work.places[b])) for b in part.found if b in wanted and b not in made]
        places = [*(p for e in entries for p in e.places), *(p for _, p in exports)]
        roots = dict.fromkeys([*(p.root for p in places if p.root != ARENA), *made])
        outside = [replace(work.roots[b], is_made=b in made, taken=work.taken.get(b) if b in made else None)
                   for b in roots]  # fmt: skip
        yield TableStep(part.instruction, entries, outside, exports, memory)


def _is_static(instruction: Instruction) -> bool:
    """Whether all values are non-empty arrays of numpy's types and of static sizes."""
    return _has_static(instruction.shape) and all(_has_static(o.shape) for o in instruction.operands)


def _type_of(shape: Shape) -> np.dtype[Any]:
    dtype = shape.element.numpy
    assert dtype is not None  # see _is_static
    return dtype


@lru_cache(maxsize=4096)
def _has_static(shape: Shape) -> bool:
    return all(s.is_array and not s.is_dynamic and s.num_elements and s.element.numpy is not None
               for s in shape.leaves())
