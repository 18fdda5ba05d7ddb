"""Compiles loops and branches of a plan to machine code bound to the addresses of one run's arrays.

A loop's state is double-buffered: its body reads one state and writes the other. So each trip runs one of two codes,
which differ in addresses. State that the body forwards, or updates in place, has one buffer. Nested loops and branches
have arrays for their results, which every trip overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.native.compile_llvm import Loaded
from ...codegen.native.put import put_code, put_words
from ...codegen.native.run_control import LONG, PRED, SIGNED
from ...codegen.native.run_loop import code
from ...cost.host import HOST
from ...ir.types.literal import Array
from ..plan.interpreter import Frame, Interpreter, StepPlan
from ..plan.steps import ConditionalStep, WhileStep
from .addresses import Regions, address, copy_into, is_dense
from .table import GuardedStep, TableStep

_ALWAYS = np.ones(1, np.int64)  # the end word of a step that never pauses
_SELECTORS = {np.dtype(np.bool_): PRED, np.dtype(np.int32): SIGNED}


class NotNative(Exception):
    """Raised for arrays whose layout machine code does not support."""


def _updated(body: StepPlan) -> dict[int, int]:
    """Maps each buffer that takes over an array of a loop's state, to be updated, to the index of that array. A trip
    returns it as the next state of the same index.
    """
    numbers = {buffer: n for n, buffer in enumerate(body.parameters)}
    found: dict[int, int] = {}
    for step in body.steps:
        if isinstance(step, TableStep):
            for o in step.outside:
                if o.taken in numbers and o.taken in step.dead:
                    found[o.buffer] = numbers[o.taken]
            found |= {buffer: found[root] for buffer, root in step.wholes.items() if root in found}
    return {buffer: n for buffer, n in found.items() if found.get(body.results[n]) == n}


@dataclass(slots=True)
class DeviceRun:
    """The run of one device. `left` is the budget (bytes) that its loops may spend before they pause."""

    interpreter: Interpreter
    device: int
    left: Array = field(default_factory=lambda: np.array([HOST.pause], np.int64))


@dataclass(slots=True)
class _Code:
    """The steps of a plan as table entries: code and blocks, and the arrays that must stay alive. `updated` are the
    buffers that take over arrays of the state. Unless it `is_real`, only the addresses of results are found.
    """

    run: DeviceRun
    plan: StepPlan
    updated: Mapping[int, int] = field(default_factory=dict[int, int])
    is_real: bool = True
    entries: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    kept: list[Any] = field(default_factory=list[Any])

    def results(self, state: Sequence[Array], made: dict[int, Array]) -> list[Array]:
        """Adds the steps of the plan for a state, with the arrays of `made` for its buffers. Returns its results."""
        frame = self.plan.frame(self.run.device, list(state))
        changing = Regions(state[n] for n in self.updated.values())
        for step in self.plan.steps:
            if isinstance(step, TableStep):
                self._table(step, frame, made)
            elif isinstance(step.acting, ConditionalStep):
                self._choose(step.acting, frame, made)
            else:
                assert isinstance(step, GuardedStep)  # see arranged
                self._loop(step, frame, made, changing)
        if any(changing.share(array_of(frame[b])) for b in self.plan.results if b not in self.updated):
            raise NotNative  # the readers of a view may expect the old contents
        return [self._dense(frame[buffer]) for buffer in self.plan.results]

    def _table(self, step: TableStep, frame: Frame, made: dict[int, Array]) -> None:
        block, held = step.memory.block(self.run.interpreter, self.run.device), dict[int, Array]()
        for o in step.outside:
            if o.buffer in self.updated:
                frame[o.buffer] = frame[o.taken or 0]
            elif o.is_made:
                frame[o.buffer] = made.setdefault(o.buffer, np.empty(o.dims, o.dtype))
                if o.taken is not None:
                    self.copy(array_of(frame[o.taken]), frame[o.buffer])
            held[o.buffer] = x = self._dense(frame[o.buffer])
            if x.shape != o.dims or x.dtype != o.dtype:
                raise NotNative
        if self.is_real:
            self.kept += held.values()
            self.add(code("run"), step.table(block, held))
        step.export(frame, block, held)

    def _loop(self, guarded: GuardedStep, frame: Frame, made: dict[int, Array], changing: Regions) -> None:
        """Adds a loop. State that it forwards keeps its address, unless that memory changes afterwards."""
        step = guarded.inner
        assert isinstance(step, WhileStep)  # see native_loop
        given = [array_of(frame[buffer]) for buffer in step.reads]
        for n, write in enumerate(step.writes):
            if step.body.parameters[n] == step.body.results[n]:
                given[n] = frame[write] = self._dense(given[n])
            is_reused = guarded.memory.holds(self.run.interpreter, frame[write])
            if frame[write] is None or is_reused or changing.share(frame[write]):
                frame[write] = made.setdefault(write, np.empty(given[n].shape, given[n].dtype))
        if not self.is_real:
            return
        loop = Loop.of(step, given, self.run, [frame[write] for write in step.writes])
        for x, first in zip(given, loop.states[0], strict=True):
            self.copy(x, first)
        self.copy(np.zeros(1, np.int64), loop.block[1:2])
        self.add(code("loop"), loop.block, may_pause=True)
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
        self.add(code("choose"), words, may_pause=True)

    def _dense(self, value: Any) -> Array:
        """Returns a value without gaps: itself, or a copy that the code makes at this point."""
        x = array_of(value)
        if is_dense(x):
            return x
        found = np.empty(x.shape, x.dtype)
        self.copy(x, found)
        return found

    def copy(self, source: Array, target: Array) -> None:
        """Adds a copy of an array, unless source and target are the same."""
        if self.is_real and address(source) != address(target):
            self.kept += [source, target]
            words = put_words(source.shape, source.itemsize, (source.strides, target.strides))
            self.add(put_code(0), [address(source), address(target), *words])

    def add(self, function: Loaded, words: Sequence[int] | Array, may_pause: bool = False) -> None:
        """Adds a step of machine code. One that may pause says in its first word whether it has ended."""
        block = words if isinstance(words, np.ndarray) else np.array(words, np.int64)
        self.kept.append(block)
        self.entries.append((function.address, address(block), address(block if may_pause else _ALWAYS)))

    def sequence(self) -> Array:
        """Returns the words of the sequence of all steps."""
        if not self.entries:
            self.add(code("run"), [0])
        found = np.array([0, 0, len(self.entries), *(word for entry in self.entries for word in entry)], np.int64)
        self.kept.append(found)
        return found


@dataclass(slots=True)
class Loop:
    """The loop of one device: its words, both states, the arrays that must stay alive, and in a run the first state as
    given. `is_kept` ones run again.
    """

    run: DeviceRun
    block: Array
    states: tuple[list[Array], list[Array]]
    kept: list[Any]
    given: Sequence[Array] = ()
    is_kept: bool = False

    def begin(self, given: Sequence[Array]) -> None:
        """Restarts the loop with another state."""
        self.given = given
        for place, x in zip(self.states[0], given, strict=True):
            if place is not x:
                copy_into(place, x)
        self.block[:3] = 0

    @property
    def state(self) -> list[Array]:
        """The current state."""
        return self.states[int(self.block[1])]

    @staticmethod
    def of(
        step: WhileStep, given: Sequence[Array], run: DeviceRun, results: Sequence[Array | None] | None = None
    ) -> Loop:
        """Returns a loop that has to begin with state like the given one; what trips forward is that array itself.
        State that is updated in place lies in its array of `results`. Raises NotNative.
        """
        updated = _updated(step.body)
        states, made = _states(step.body, given, run, updated, results or [None] * len(given))
        codes: list[_Code] = []
        heads: list[list[int]] = []
        for number in range(2):
            test = _Code(run, step.condition)
            (found,) = test.results(states[number], {})
            trip = _Code(run, step.body, updated)
            for x, y in zip(trip.results(states[number], made[number]), states[1 - number], strict=True):
                trip.copy(x, y)
            heads.append([address(test.sequence()), address(found), address(trip.sequence())])
            test.kept.append(found)
            codes += [test, trip]
        touched = sum(s.touched for plan in step.plans() for s in plan.steps if isinstance(s, TableStep))
        block = np.array([0, 0, 0, address(run.left), touched + HOST.trip, *heads[0], *heads[1]], np.int64)
        return Loop(run, block, states, [codes, made])


def _states(
    plan: StepPlan, given: Sequence[Array], run: DeviceRun, updated: Mapping[int, int],
    wanted: Sequence[Array | None],
) -> tuple[tuple[list[Array], list[Array]], list[dict[int, Array]]]:  # fmt: skip
    """Returns both states, and the results of a trip from each of them.

    Both states share an array that a trip forwards or updates. An array that it makes belongs to the other state; other
    results are copied.
    """
    like = [np.empty(x.shape, x.dtype) for x in given]
    made: list[dict[int, Array]] = [{}, {}]
    results = [_Code(run, plan, updated, is_real=False).results(like, m) for m in made]
    owned = [{address(x) for x in m.values()} for m in made]
    states: tuple[list[Array], list[Array]] = [], []
    seen: set[int] = set()
    for n, (x, old) in enumerate(zip(given, like, strict=True)):
        after = results[0][n], results[1][n]
        if n in updated.values():
            whole = wanted[n]
            pair = (old if whole is None else whole,) * 2
        elif address(after[0]) == address(old):
            pair = (x if is_dense(x) else old,) * 2
        elif all(address(a) in own for a, own in zip(after, owned, strict=True)) and address(after[0]) not in seen:
            seen.add(address(after[0]))
            pair = (after[1], after[0])
        else:
            pair = (old, np.empty_like(old))
        for state, array in zip(states, pair, strict=True):
            state.append(array)
    return states, made


def array_of(value: Any) -> Array:
    """Returns a value as an array. Raises NotNative for tokens."""
    if value is None:
        raise NotNative
    return np.asarray(value)
