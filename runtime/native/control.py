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
from ...ir.types.memory import address
from ..plan.interpreter import Frame, Interpreter, StepPlan
from ..plan.steps import ConditionalStep, WhileStep
from .addresses import Regions, copied, copy_into, is_dense
from .moving import Placeholders, RunAddresses
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
    """The code that is made for one device. `left` is the budget (bytes) that its loops may spend before they pause."""

    interpreter: Interpreter
    device: int
    left: Array = field(default_factory=lambda: np.array([HOST.pause], np.int64))
    arrays: Placeholders = field(default_factory=Placeholders)


@dataclass(slots=True)
class _Code:
    """The steps of a plan as table entries: code and blocks. `updated` are the buffers that take over arrays of the
    state. Unless it `is_real`, only the addresses of results are found.
    """

    run: DeviceRun
    plan: StepPlan
    updated: Mapping[int, int] = field(default_factory=dict[int, int])
    is_real: bool = True
    entries: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

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
                frame[o.buffer] = self._made(made, o.buffer, o.dims, o.dtype)
                if o.taken is not None:
                    self.copy(array_of(frame[o.taken]), frame[o.buffer])
            held[o.buffer] = x = self._dense(frame[o.buffer])
            if x.shape != o.dims or x.dtype != o.dtype:
                raise NotNative
        if self.is_real:
            self.run.arrays.kept += held.values()
            table = step.table(block, held)
            self.add(code("run"), table, step.addresses(table))
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
                frame[write] = self._made(made, write, given[n].shape, given[n].dtype)
        if not self.is_real:
            return
        block, states = _coded(step, given, self.run, [frame[write] for write in step.writes])
        for x, first in zip(given, states[0], strict=True):
            self.copy(x, first)
        self.copy(np.zeros(1, np.int64), block[1:2])
        self.add(code("loop"), block, may_pause=True)
        ends: list[_Code] = []
        for state in states:
            ends.append(_Code(self.run, self.plan))
            for x, write in zip(state, step.writes, strict=True):
                ends[-1].copy(x, frame[write])
        self._branch(block[1:2], LONG, ends)

    def _choose(self, step: ConditionalStep, frame: Frame, made: dict[int, Array]) -> None:
        values = [self._dense(frame[buffer]) for buffer in step.reads]
        if values[0].ndim or values[0].dtype not in _SELECTORS:
            raise NotNative
        outs: list[Array] = []
        for write, leaf in zip(step.writes, step.instruction.shape.leaves(), strict=True):
            if leaf.element.numpy is None:
                raise NotNative
            outs.append(self._made(made, write, leaf.dims, leaf.element.numpy))
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
        self.run.arrays.kept.append(selector)
        words = [0, -1, address(selector), kind, len(codes), *(address(c.sequence()) for c in codes)]
        self.add(code("choose"), words, [2], may_pause=True)

    def _made(self, made: dict[int, Array], buffer: int, dims: Sequence[int], dtype: Any) -> Array:
        """Returns the array for a buffer, a new one if there is none."""
        if buffer not in made:
            made[buffer] = self.run.arrays.new(dims, dtype)
        return made[buffer]

    def _dense(self, value: Any) -> Array:
        """Returns a value without gaps: itself, or a copy that the code makes at this point."""
        x = array_of(value)
        if is_dense(x):
            return x
        found = self.run.arrays.new(x.shape, x.dtype)
        self.copy(x, found)
        return found

    def copy(self, source: Array, target: Array) -> None:
        """Adds a copy of an array, unless source and target are the same."""
        if self.is_real and address(source) != address(target):
            self.run.arrays.kept += [source, target]
            words = put_words(source.shape, source.itemsize, (source.strides, target.strides))
            self.add(put_code(0), [address(source), address(target), *words], [0, 1])

    def add(
        self, function: Loaded, words: Sequence[int] | Array, arrays: Sequence[int] | Array = (),
        may_pause: bool = False,
    ) -> None:  # fmt: skip
        """Adds a step of machine code, some of whose words are the addresses of `arrays`. One that may pause says in
        its first word whether it has ended.
        """
        block = words if isinstance(words, np.ndarray) else np.array(words, np.int64)
        self.run.arrays.kept.append(block)
        self.run.arrays.sites.append((block, arrays))
        self.entries.append((function.address, address(block), address(block if may_pause else _ALWAYS)))

    def sequence(self) -> Array:
        """Returns the words of the sequence of all steps."""
        if not self.entries:
            self.add(code("run"), [0])
        found = np.array([0, 0, len(self.entries), *(word for entry in self.entries for word in entry)], np.int64)
        self.run.arrays.kept.append(found)
        return found


def _coded(
    step: WhileStep, given: Sequence[Array], run: DeviceRun, results: Sequence[Array | None]
) -> tuple[Array, tuple[list[Array], list[Array]]]:
    """Returns the words of a loop and its two states, which has to begin with state like the given one; what trips
    forward is that array itself. State that is updated in place lies in its array of `results`. Raises NotNative.
    """
    updated, heads = _updated(step.body), list[int]()
    states, made = _states(step.body, given, run, updated, results)
    for number in range(2):
        test = _Code(run, step.condition)
        (found,) = test.results(states[number], {})
        trip = _Code(run, step.body, updated)
        for x, y in zip(trip.results(states[number], made[number]), states[1 - number], strict=True):
            trip.copy(x, y)
        heads += [address(test.sequence()), address(found), address(trip.sequence())]
        run.arrays.kept.append(found)
    touched = sum(s.touched for plan in step.plans() for s in plan.steps if isinstance(s, TableStep))
    block = np.array([0, 0, 0, address(run.left), touched + HOST.trip, *heads], np.int64)
    run.arrays.sites.append((block, [6, 9]))  # where conditions put their results
    return block, states


class Loop:
    """The loop of one device, for state like the given one. Raises NotNative.

    Its code is kept for the next run, which has other arrays: what trips forward are those that it is given, and all
    others are new.
    """

    def __init__(self, step: WhileStep, given: Sequence[Array], interpreter: Interpreter, device: int) -> None:
        run = DeviceRun(interpreter, device)
        like = [run.arrays.new(x.shape, x.dtype) for x in given]
        self.left, self.device, self.given = run.left, device, given
        self.block, states = _coded(step, like, run, [None] * len(like))
        self._addresses = RunAddresses(run.arrays, states)
        self._states = self._addresses.states
        self._forwarded = {n: self._states[0][n].number for n, x in enumerate(states[0]) if x is like[n]}
        self._arrays: Mapping[int, Array] = {}

    def is_like(self, given: Sequence[Array]) -> bool:
        """Whether the loop is that of state with these sizes and types."""
        return all(one.dims == x.shape and one.dtype == x.dtype for one, x in zip(self._states[0], given))

    def begin(self, given: Sequence[Array]) -> None:
        """Begins a run, with a state like the first one."""
        dense = {place: x if is_dense(x := given[n]) else copied(x) for n, place in self._forwarded.items()}
        self.given, self._arrays = given, self._addresses.arrays(dense)
        for n, (one, x) in enumerate(zip(self._states[0], given, strict=True)):
            if n not in self._forwarded:
                copy_into(one.of(self._arrays), x)
        self.block[:3] = 0

    def end(self) -> list[Array]:
        """Ends a run. Returns the state that it has reached."""
        given, arrays = self.given, self._arrays
        self.given, self._arrays = (), {}
        reached = enumerate(self._states[int(self.block[1])])
        return [given[n] if n in self._forwarded else one.of(arrays) for n, one in reached]


def _states(
    plan: StepPlan, given: Sequence[Array], run: DeviceRun, updated: Mapping[int, int],
    wanted: Sequence[Array | None],
) -> tuple[tuple[list[Array], list[Array]], list[dict[int, Array]]]:  # fmt: skip
    """Returns both states, and the results of a trip from each of them.

    Both states share an array that a trip forwards or updates. An array that it makes belongs to the other state; other
    results are copied.
    """
    like = [run.arrays.new(x.shape, x.dtype) for x in given]
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
            pair = (old, run.arrays.new(old.shape, old.dtype))
        for state, array in zip(states, pair, strict=True):
            state.append(array)
    return states, made


def array_of(value: Any) -> Array:
    """Returns a value as an array. Raises NotNative for tokens."""
    if value is None:
        raise NotNative
    return np.asarray(value)
