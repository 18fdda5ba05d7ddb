"""Compiles loops and branches of a plan to machine code bound to the addresses of one run's arrays.

A loop's state is double-buffered: its body reads one state and writes the other. So each trip runs one of two codes,
which differ in addresses. State that the body forwards, or updates in place, has one buffer. Nested loops and branches
have arrays for their results, which every trip overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.native.run_control import LONG, PRED, SIGNED
from ...codegen.native.run_loop import INDICES, code, put_words
from ...cost.host import HOST
from ...ir.ops.slicing import DynamicUpdateSlice
from ...ir.types.literal import Array
from ..plan.interpreter import Frame, Interpreter, Step, StepPlan
from ..plan.steps import ConditionalStep, WhileStep
from ..plan.updates import UpdateStep
from .addresses import Regions, address, copy_into, is_dense
from .table import DeviceArena, TableStep

_ALWAYS = np.ones(1, np.int64)  # the end word of a step that never pauses
_SELECTORS = {np.dtype(np.bool_): PRED, np.dtype(np.int32): SIGNED}


class NotNative(Exception):
    """Raised for arrays whose layout machine code does not support."""


def is_native(step: WhileStep) -> bool:
    """Whether a loop consists of tables, of native control flow, and of in-place updates of its state."""
    return all(map(_runs, step.condition.steps)) and _updated(step.body) is not None


def steps_of(plan: StepPlan) -> int:
    """Counts the steps of a plan, and those of its loops and branches."""
    return sum(len(inner.steps) for inner in plan.all_plans())


def _runs(step: Step) -> bool:
    inner = step.acting
    if isinstance(inner, ConditionalStep):
        return all(_runs(s) for branch in inner.branches for s in branch.steps)
    return isinstance(step, TableStep) or (isinstance(inner, WhileStep) and is_native(inner))


def _updated(plan: StepPlan) -> dict[int, int] | None:
    """Maps each buffer that is updated in place to the loop-state index it aliases; None if some step has no machine
    code.

    An update also needs to return its buffer as the next state of the same index.
    """
    numbers = {buffer: n for n, buffer in enumerate(plan.parameters)}
    found: dict[int, int] = {}
    for step in (s for s in plan.steps if not _runs(s)):
        inner = step.acting
        if not isinstance(inner, UpdateStep) or not isinstance(inner.instruction.op, DynamicUpdateSlice):
            return None
        (first, *others), (result,) = inner.reads, inner.writes
        number = found.get(first, numbers.get(first))
        if number is None or first not in step.dead or first in others:
            return None
        found[result] = number
    return found if all(found.get(plan.results[n]) == n for n in found.values()) else None


@dataclass(slots=True)
class DeviceRun:
    """The run of one device. `left` is the budget (bytes) that its loops may spend before they pause."""

    interpreter: Interpreter
    device: int
    left: Array = field(default_factory=lambda: np.array([HOST.pause], np.int64))

    def block(self, plan: StepPlan) -> DeviceArena:
        """Returns the arena of a plan; one of no size if it has no tables."""
        found = next((s.memory for s in plan.steps if isinstance(s, TableStep)), None)
        return DeviceArena.of(0) if found is None else found.block(self.interpreter, self.device)


@dataclass(slots=True)
class _Code:
    """The steps of a plan as table entries: code and blocks, and the arrays that must stay alive. Unless it `is_real`,
    only the addresses of results are found.
    """

    run: DeviceRun
    plan: StepPlan
    is_real: bool = True
    entries: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    kept: list[Any] = field(default_factory=list[Any])

    def results(self, state: Sequence[Array], made: dict[int, Array]) -> list[Array]:
        """Adds the steps of the plan for a state, with the arrays of `made` for its buffers. Returns its results."""
        frame, updated = self.plan.frame(self.run.device, list(state)), _updated(self.plan) or {}
        block, changed = self.run.block(self.plan), [state[n] for n in updated.values()]
        changing, reused = Regions(changed), Regions([*changed, block.memory])
        for step in self.plan.steps:
            inner = step.acting
            if isinstance(step, TableStep):
                self._table(step, block, frame, made)
            elif isinstance(inner, WhileStep):
                self._loop(inner, frame, made, reused)
            elif isinstance(inner, ConditionalStep):
                self._choose(inner, frame, made)
            else:
                self._put(step, frame, changing)
        _refuse_views(changing, [frame[buffer] for buffer in self.plan.results if buffer not in updated])
        return [self._dense(frame[buffer]) for buffer in self.plan.results]

    def _table(self, step: TableStep, block: DeviceArena, frame: Frame, made: dict[int, Array]) -> None:
        held: dict[int, Array] = {}
        for o in step.outside:
            if o.is_made:
                frame[o.buffer] = made.setdefault(o.buffer, np.empty(o.dims, o.dtype))
            held[o.buffer] = x = self._dense(frame[o.buffer])
            if x.shape != o.dims or x.dtype != o.dtype:
                raise NotNative
        if self.is_real:
            self.kept += held.values()
            self.add("run", step.table(block, held))
        step.export(frame, block, held)

    def _put(self, step: Step, frame: Frame, changing: Regions) -> None:
        first, *others = step.acting.reads
        whole = array_of(frame[first])
        part, *starts = (self._dense(frame[buffer]) for buffer in others)
        _refuse_views(changing, (part, *starts))
        if not is_dense(whole) or any(start.ndim or start.dtype not in INDICES for start in starts):
            raise NotNative
        most = [n - m for n, m in zip(whole.shape, part.shape, strict=True)]
        kinds = [INDICES[start.dtype] for start in starts]
        self._put_into(whole, part, list(zip(map(address, starts), kinds, most, whole.strides, strict=True)))
        self.kept += starts
        frame[step.writes[0]] = whole

    def _loop(self, step: WhileStep, frame: Frame, made: dict[int, Array], reused: Regions) -> None:
        """Adds a loop. State that it forwards keeps its address, unless that memory changes afterwards."""
        given = [self._dense(frame[buffer]) for buffer in step.reads]
        for x, write, before, after in zip(given, step.writes, step.body.parameters, step.body.results, strict=True):
            stays = before == after and not reused.has_part_of(x)
            frame[write] = x if stays else made.setdefault(write, np.empty(x.shape, x.dtype))
        if not self.is_real:
            return
        loop = Loop.of(step, given, self.run)
        for x, first in zip(given, loop.states[0], strict=True):
            self.copy(x, first)
        self.copy(np.zeros(1, np.int64), loop.block[1:2])
        self.add("loop", loop.block, may_pause=True)
        ends: list[_Code] = []
        for state in loop.states:
            ends.append(_Code(self.run, self.plan))
            for x, write in zip(state, step.writes, strict=True):
                ends[-1].copy(x, frame[write])
        self._branch(loop.block[1:2], LONG, ends)
        self.kept.append(loop)

    def _choose(self, step: ConditionalStep, frame: Frame, made: dict[int, Array]) -> None:
        values = [self._dense(frame[buffer]) for buffer in step.reads]
        if values[0].ndim or values[0].dtype not in _SELECTORS:
            raise NotNative
        outs: list[Array] = []
        for write, leaf in zip(step.writes, step.instruction.shape.leaves(), strict=True):
            if leaf.element.numpy is None:
                raise NotNative
            outs.append(made.setdefault(write, np.empty(leaf.dims, leaf.element.numpy)))
            frame[write] = outs[-1]
        if not self.is_real:
            return
        branches: list[_Code] = []
        for plan, operands in zip(step.branches, step.slices, strict=True):
            branches.append(_Code(self.run, plan))
            found = branches[-1].results(values[operands], dict(zip(plan.results, outs, strict=True)))
            for x, out in zip(found, outs, strict=True):
                if x.shape != out.shape or x.dtype != out.dtype:
                    raise NotNative
                branches[-1].copy(x, out)
        self._branch(values[0], _SELECTORS[values[0].dtype], branches)

    def _branch(self, selector: Array, kind: int, codes: Sequence[_Code]) -> None:
        sequences = [c.sequence() for c in codes]
        self.kept += [selector, *codes, *sequences]
        words = [0, -1, address(selector), kind, len(codes), *map(address, sequences)]
        self.add("choose", words, may_pause=True)

    def _dense(self, value: Any) -> Array:
        """Returns a value without gaps: itself, or a copy that the code makes at this point."""
        x = array_of(value)
        if is_dense(x):
            return x
        found = np.empty(x.shape, x.dtype)
        self._put_into(found, x)
        return found

    def _put_into(self, whole: Array, part: Array, indices: Sequence[tuple[int, int, int, int]] = ()) -> None:
        if not self.is_real:
            return
        words = put_words(part.shape, part.itemsize, (part.strides, whole.strides), indices)
        self.kept += [whole, part]
        self.add("put", [address(part), address(whole), *words])

    def copy(self, source: Array, target: Array) -> None:
        """Adds a copy of an array, unless source and target are the same."""
        if address(source) != address(target):
            self.kept += [source, target]
            self.add("copy", [address(source), address(target), source.nbytes])

    def add(self, name: str, words: Sequence[int] | Array, may_pause: bool = False) -> None:
        """Adds a step by its name. One that may pause says in its first word whether it has ended."""
        block = words if isinstance(words, np.ndarray) else np.array(words, np.int64)
        self.kept.append(block)
        self.entries.append((code(name).address, address(block), address(block if may_pause else _ALWAYS)))

    def sequence(self) -> Array:
        """Returns the words of the sequence of all steps."""
        if not self.entries:
            self.add("run", [0])
        found = np.array([0, 0, len(self.entries), *(word for entry in self.entries for word in entry)], np.int64)
        self.kept.append(found)
        return found


@dataclass(slots=True)
class Loop:
    """The loop of one device: its words, both states, and the arrays that must stay alive. `is_kept` ones run again."""

    run: DeviceRun
    block: Array
    states: tuple[list[Array], list[Array]]
    kept: list[Any]
    is_kept: bool = False

    def begin(self, given: Sequence[Array]) -> None:
        """Restarts the loop with another state."""
        for place, x in zip(self.states[0], given, strict=True):
            copy_into(place, x)
        self.block[:3] = 0

    @property
    def state(self) -> list[Array]:
        """The current state."""
        return self.states[int(self.block[1])]

    @staticmethod
    def of(step: WhileStep, given: Sequence[Array], run: DeviceRun) -> Loop:
        """Returns the loop before its first trip. Raises NotNative."""
        states, made = _states(step.body, given, run)
        codes: list[_Code] = []
        heads: list[list[int]] = []
        for number in range(2):
            test = _Code(run, step.condition)
            (found,) = test.results(states[number], {})
            trip = _Code(run, step.body)
            for x, y in zip(trip.results(states[number], made[number]), states[1 - number], strict=True):
                trip.copy(x, y)
            heads.append([address(test.sequence()), address(found), address(trip.sequence())])
            test.kept.append(found)
            codes += [test, trip]
        touched = sum(s.touched for plan in step.plans() for s in plan.steps if isinstance(s, TableStep))
        block = np.array([0, 0, 0, address(run.left), touched + HOST.trip, *heads[0], *heads[1]], np.int64)
        return Loop(run, block, states, [codes, made])


def _states(
    plan: StepPlan, given: Sequence[Array], run: DeviceRun
) -> tuple[tuple[list[Array], list[Array]], list[dict[int, Array]]]:
    """Returns both states, the first one as given, and the results of a trip from each of them.

    Both states share an array that a trip forwards or updates. An array that it makes belongs to the other state; other
    results are copied.
    """
    like = [np.empty(x.shape, x.dtype) for x in given]
    made: list[dict[int, Array]] = [{}, {}]
    results = [_Code(run, plan, is_real=False).results(like, m) for m in made]
    updated = set((_updated(plan) or {}).values())
    owned = [{address(x) for x in m.values()} for m in made]
    first, second = list[Array](), list[Array]()
    seen: set[int] = set()
    for n, (x, old) in enumerate(zip(given, like, strict=True)):
        after = results[0][n], results[1][n]
        if n in updated:
            pair = (old, old)
        elif address(after[0]) == address(old):
            pair = (x if is_dense(x) else x.copy(order="C"),) * 2
        elif all(address(a) in own for a, own in zip(after, owned, strict=True)) and address(after[0]) not in seen:
            seen.add(address(after[0]))
            pair = (after[1], after[0])
        else:
            pair = (old, np.empty_like(old))
        if pair[0] is not x:
            copy_into(pair[0], x)
        first.append(pair[0])
        second.append(pair[1])
    return (first, second), made


def array_of(value: Any) -> Array:
    """Returns a value as an array. Raises NotNative for tokens."""
    if value is None:
        raise NotNative
    return np.asarray(value)


def _refuse_views(changing: Regions, read: Sequence[Any]) -> None:
    """Raises NotNative if a value is a view of an array updated in place: its readers may expect the old contents."""
    if any(changing.has_part_of(array_of(value)) for value in read):
        raise NotNative
