"""Loops whose conditions and bodies are native steps alone: machine code runs them, trip after trip.

The state has two places, and the body reads one and makes the other. So each trip runs one of two tables, which differ
in addresses. State that the body leaves as it is, or updates in place, has one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.native.run_loop import INDICES, code, put_words
from ...ir.ops.slicing import DynamicUpdateSlice
from ..plan.interpreter import Frame, Interpreter, Plan, Step
from ..plan.limits import check_time
from ..plan.steps import WhileStep, free_unused
from ..plan.updates import UpdateStep
from .addresses import address
from .table import Block, TableStep
from .workers import run_all

Array = np.ndarray[Any, Any]
_PIECE = 1 << 25  # bytes that the trips touch before Python looks at the time, a few milliseconds


class _NotNative(Exception):
    """The state of a loop does not lie as its machine code needs it."""


def native_loop(step: WhileStep) -> Step:
    """Returns a loop that machine code runs, if its condition and its body are tables and put slices into state."""
    if not all(isinstance(s, TableStep) for s in step.condition.steps) or _updated(step.body) is None:
        return step
    return LoopStep(step.instruction, step.condition, step.body, step.reads, step.writes)


def _updated(plan: Plan) -> dict[int, int] | None:
    """Returns the numbers of the parameters in whose arrays a plan puts slices, by the buffers of what it makes so.

    None if a step is neither a table nor such a put, or if such an array is not the next state of the same number.
    """
    numbers = {buffer: n for n, buffer in enumerate(plan.parameters)}
    found: dict[int, int] = {}
    for step in (s for s in plan.steps if not isinstance(s, TableStep)):
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
class _Table:
    """Native steps of a plan, with what they refer to: their functions and blocks, and arrays that must stay."""

    plan: Plan
    block: Block
    device: int
    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    kept: list[Array] = field(default_factory=list[Array])

    def results(self, state: Sequence[Array], made: dict[int, Array], is_real: bool = True) -> list[Array]:
        """Adds the steps of the plan for a state, with these arrays for what it makes; returns its results. Unless
        `is_real`, only finds where these lie.
        """
        frame, updated = self.plan.frame(self.device, list(state)), _updated(self.plan) or {}
        changing = [state[n] for n in updated.values()]
        for step in self.plan.steps:
            if isinstance(step, TableStep):
                self._table(step, frame, made, is_real)
            else:
                self._put(step, frame, changing, is_real)
        _refuse_views(changing, [frame[buffer] for buffer in self.plan.results if buffer not in updated])
        return [_dense(frame[buffer]) for buffer in self.plan.results]

    def _table(self, step: TableStep, frame: Frame, made: dict[int, Array], is_real: bool) -> None:
        held: dict[int, Array] = {}
        for o in step.outside:
            if o.is_made:
                frame[o.buffer] = made.setdefault(o.buffer, np.empty(o.dims, o.dtype))
            held[o.buffer] = x = _dense(frame[o.buffer])
            if x.shape != o.dims or x.dtype != o.dtype:
                raise _NotNative
        if is_real:
            pairs, words = step.pairs(self.block, held)
            self.pairs += pairs
            self.kept += [words, *held.values()]
        for buffer, place in step.exports:
            root = held.get(place.root)
            frame[buffer] = place.array(self.block.memory, self.block.start) if root is None else place.array(root)

    def _put(self, step: Step, frame: Frame, changing: Sequence[Array], is_real: bool) -> None:
        whole, part, *starts = (_dense(frame[buffer]) for buffer in step.acting.reads)
        _refuse_views(changing, (part, *starts))
        if any(start.ndim or start.dtype not in INDICES for start in starts):
            raise _NotNative
        if is_real:
            indices = [(address(start), INDICES[start.dtype]) for start in starts]
            words = put_words(whole.shape, part.shape, whole.itemsize, indices)
            self.kept += [whole, part, *starts]
            self.add("put", [address(part), address(whole), *words])
        frame[step.writes[0]] = whole

    def add(self, name: str, words: Sequence[int]) -> None:
        """Adds a step by its name."""
        block = np.array(words, np.int64)
        self.kept.append(block)
        self.pairs.append((code(name).address, address(block)))

    def words(self) -> Array:
        """Returns the table as the loop of tables takes it."""
        found = np.array([len(self.pairs), *(word for pair in self.pairs for word in pair)], np.int64)
        self.kept.append(found)
        return found


def _array(value: Any) -> Array:
    """Returns a value as an array. Raises _NotNative for tokens."""
    if value is None:
        raise _NotNative
    return np.asarray(value)


def _dense(value: Any) -> Array:
    """Returns an array as it is. Raises _NotNative for tokens, and if it has gaps."""
    x = _array(value)
    if not (x.flags.c_contiguous and x.flags.aligned):
        raise _NotNative
    return x


def _refuse_views(changing: Sequence[Array], read: Sequence[Any]) -> None:
    """Raises _NotNative if a value is part of an array that changes in place: it may mean what was there before."""
    if any(np.may_share_memory(x, _array(value)) for x in changing for value in read):
        raise _NotNative


class LoopStep(WhileStep):
    """Runs a loop by machine code; as Python does where the state does not lie as that needs it."""

    __slots__ = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        try:
            loops = [_Loop.of(self, frame, interpreter) for frame in frames]
        except _NotNative:
            super().run(frames, interpreter)
            return
        self.take(frames)
        going = loops
        while going:
            check_time()
            run_all(code("loop").run, [address(loop.block) for loop in going], _PIECE * len(going))
            going = [loop for loop in going if not loop.block[0]]
            if interpreter.fabric.needs_progress:
                interpreter.fabric.progress()
        self.give(frames, [loop.state for loop in loops])
        free_unused(self, frames)


@dataclass(slots=True)
class _Loop:
    """The loop of one device: its words, both states, and what must stay in memory."""

    block: Array
    states: tuple[list[Array], list[Array]]
    kept: list[Any]

    @property
    def state(self) -> list[Array]:
        """The current state."""
        return self.states[int(self.block[1])]

    @staticmethod
    def of(step: LoopStep, frame: Frame, interpreter: Interpreter) -> _Loop:
        """Returns the loop before its first trip. Raises _NotNative."""
        device = frame[0]
        given = [_array(frame[buffer]) for buffer in step.reads]
        condition, body = (_memory(plan, interpreter, device) for plan in (step.condition, step.body))
        states, made = _states(step.body, body, device, given)
        tables: list[_Table] = []
        heads: list[list[int]] = [[], [], []]
        for number in range(2):
            test = _Table(step.condition, condition, device)
            (found,) = test.results(states[number], {})
            trip = _Table(step.body, body, device)
            for x, y in zip(trip.results(states[number], made[number]), states[1 - number], strict=True):
                if address(x) != address(y):
                    trip.add("copy", [address(x), address(y), x.nbytes])
            for words, table in zip(heads, (test.words(), found, trip.words()), strict=True):
                words.append(address(table))
            test.kept.append(found)
            tables += [test, trip]
        touched = sum(s.touched for plan in (step.condition, step.body) for s in plan.steps if isinstance(s, TableStep))
        limit = max(1, _PIECE // (touched + 4096))
        block = np.array([0, 0, limit, *(word for words in heads for word in words)], np.int64)
        return _Loop(block, states, [tables, made, condition, body])


def _memory(plan: Plan, interpreter: Interpreter, device: int) -> Block:
    """Returns the arena of a plan; one of no size if it has no tables."""
    found = next((s.memory for s in plan.steps if isinstance(s, TableStep)), None)
    return Block.of(0) if found is None else found.block(interpreter, device)


def _states(
    plan: Plan, block: Block, device: int, given: Sequence[Array]
) -> tuple[tuple[list[Array], list[Array]], list[dict[int, Array]]]:
    """Returns both states, the first one as given, and what a trip from each of them makes.

    Where a trip leaves an array or updates it, both states have the same. Where it makes one, that is the other
    state's; other results are copied.
    """
    like = [np.empty(x.shape, x.dtype) for x in given]
    made: list[dict[int, Array]] = [{}, {}]
    results = [_Table(plan, block, device).results(like, m, is_real=False) for m in made]
    updated = set((_updated(plan) or {}).values())
    owned = [{address(x) for x in m.values()} for m in made]
    first, second = list[Array](), list[Array]()
    seen: set[int] = set()
    for n, (x, old) in enumerate(zip(given, like, strict=True)):
        after = results[0][n], results[1][n]
        if n in updated:
            pair = (old, old)
        elif address(after[0]) == address(old):
            pair = (x if x.flags.c_contiguous and x.flags.aligned else x.copy(order="C"),) * 2
        elif all(address(a) in own for a, own in zip(after, owned, strict=True)) and address(after[0]) not in seen:
            seen.add(address(after[0]))
            pair = (after[1], after[0])
        else:
            pair = (old, np.empty_like(old))
        if pair[0] is not x:
            pair[0][...] = x
        first.append(pair[0])
        second.append(pair[1])
    return (first, second), made
