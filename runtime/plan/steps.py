"""Defines the steps of a plan: the effect of one instruction on the buffers of the devices that run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...cost.host import HOST
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber
from ...ir.graph.op import Kernel, NotEvaluable, Value
from ...ir.ops.calls.custom_call import behaviour_of
from ...ir.time_limit import TimeLimit, check_time
from ...ir.tools.trip_count import trip_count
from ...ir.types.shape import Shape
from ..fabric.collective import GridCollective
from .interpreter import NO_DEVICE, Frame, Interpreter, Step, StepPlan
from .kernels import StackedKernel
from .limits import TripLimit, most_trips

Tree = Any  # a buffer number, or the tuple of the trees of a tuple's elements


class ComputeStep(Step):
    """Calls a kernel whose operands and result are arrays. Devices whose operands are the same arrays share one result,
    unless the op calls code outside of the program, which may have effects.
    """

    __slots__ = ("kernel", "shares")

    def __init__(self, instruction: Instruction, kernel: Kernel, reads: Sequence[int], write: int) -> None:
        super().__init__(instruction, reads, (write,))
        self.kernel = kernel
        self.shares = behaviour_of(instruction) is None and not instruction.op.has_side_effect(instruction.attributes)

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        kernel, reads, write, dead = self.kernel, self.reads, self.writes[0], self.dead
        # All keys are computed before the first result, because a freed array's id is reused.
        keys = [tuple([id(frame[i]) for i in reads]) for frame in frames] if len(frames) > 1 and self.shares else ()
        made = self._stacked(frames, keys) if keys and isinstance(kernel, StackedKernel) else dict[Any, Value]()
        for number, frame in enumerate(frames):
            key = keys[number] if keys else number
            if key not in made:
                made[key] = kernel(*[frame[i] for i in reads])
            frame[write] = made[key]
            for i in dead:
                frame[i] = None


    def _stacked(self, frames: list[Frame], keys: Sequence[Any]) -> dict[Any, Value]:
        """Calls the kernel once on the operands of all devices, if they are small, so that call overhead dominates."""
        first = dict(zip(reversed(keys), reversed(frames), strict=True))
        if len(first) < 2 or any(frames[0][i].size > HOST.stacked_elements for i in self.reads):
            return {}
        found = self.kernel(*[_stack([frame[i] for frame in first.values()]) for i in self.reads])
        return dict(zip(first, found, strict=True))


def _stack(arrays: list[Any]) -> Any:
    """Stacks the arrays in a new first dimension; broadcast ones are not copied."""
    first = arrays[0]
    if all(array is first for array in arrays):
        return np.broadcast_to(first, (len(arrays), *first.shape))
    repeated = tuple(slice(1) if step == 0 else slice(None) for step in first.strides)
    if 0 in first.strides and all(array.strides == first.strides for array in arrays):
        return np.broadcast_to(np.array([a[repeated] for a in arrays]), (len(arrays), *first.shape))
    return np.array(arrays)


class TupleComputeStep(Step):
    """Calls a kernel that takes or returns tuples: packs the operand trees, flattens the result."""

    __slots__ = ("kernel", "operands")

    def __init__(
        self, instruction: Instruction, kernel: Kernel, operands: Sequence[Tree], writes: Sequence[int]
    ) -> None:
        super().__init__(instruction, [i for tree in operands for i in tree_leaves(tree)], writes)
        self.kernel = kernel
        self.operands = tuple(operands)

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        for frame in frames:
            result = self.kernel(*[pack(tree, frame) for tree in self.operands])
            for i, value in zip(self.writes, flatten(result, self.instruction.shape), strict=True):
                frame[i] = value
            for i in self.dead:
                frame[i] = None


class DeviceIdStep(Step):
    """Computes partition-id and replica-id, the only values in which devices differ."""

    __slots__ = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        op, dtype = self.instruction.op, self.instruction.shape.element.numpy
        known = op.interface(DeviceNumber)
        assert known is not None
        for frame in frames:
            if frame[0] == NO_DEVICE:
                raise NotEvaluable(f"{op.opcode} cannot stand inside a computation that is applied to elements")
            frame[self.writes[0]] = np.asarray(known.number(*interpreter.grid.place_of(frame[0])), dtype)
        self.take(frames)


class RngStep(Step):
    """Calls a kernel that takes the hidden random state of its device first."""

    __slots__ = ("kernel",)

    def __init__(self, instruction: Instruction, kernel: Kernel, reads: Sequence[int], write: int) -> None:
        super().__init__(instruction, reads, (write,))
        self.kernel = kernel

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        for frame, values in zip(frames, self.take(frames), strict=True):
            if frame[0] == NO_DEVICE:
                raise NotEvaluable(
                    f"{self.instruction.opcode} cannot stand inside a computation that is applied to elements"
                )
            frame[self.writes[0]] = self.kernel(interpreter.random_state(frame[0]), *values)
        free_unused(self, frames)


class StartStep(Step):
    """Starts a collective. The handle goes to its buffer of the first frame; `WaitStep` finds it there."""

    __slots__ = ("collective",)

    def __init__(
        self, instruction: Instruction, collective: GridCollective, reads: Sequence[int], handle: int
    ) -> None:
        super().__init__(instruction, reads, (handle,))
        self.collective = collective

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        devices = [frame[0] for frame in frames]
        frames[0][self.writes[0]] = interpreter.fabric.start(self.collective, devices, self.take(frames))


class WaitStep(Step):
    """Finishes a collective, just before the first use of its result."""

    __slots__ = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        results = interpreter.fabric.wait(frames[0][self.reads[0]])
        self.give(frames, results)
        self.take(frames)


class CallStep(Step):
    """Runs another plan: a computation with several call sites, since others are inlined."""

    __slots__ = ("callee",)

    def __init__(self, instruction: Instruction, callee: StepPlan, reads: Sequence[int], writes: Sequence[int]) -> None:
        super().__init__(instruction, reads, writes)
        self.callee = callee

    def plans(self) -> tuple[StepPlan, ...]:
        return (self.callee,)

    def with_plans(self, plans: Sequence[StepPlan]) -> CallStep:
        (callee,) = plans
        return CallStep(self.instruction, callee, self.reads, self.writes)

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        inner = [self.callee.frame(f[0], values) for f, values in zip(frames, self.take(frames), strict=True)]
        self.give(frames, interpreter.execute(self.callee, inner))
        free_unused(self, frames)


class WhileStep(Step):
    """Runs a loop. Devices leave it one by one as their conditions become false."""

    __slots__ = ("body", "condition")

    def __init__(
        self, instruction: Instruction, condition: StepPlan, body: StepPlan, reads: Sequence[int], writes: Sequence[int]
    ) -> None:
        super().__init__(instruction, reads, writes)
        self.condition = condition
        self.body = body

    def plans(self) -> tuple[StepPlan, ...]:
        return (self.condition, self.body)

    def with_plans(self, plans: Sequence[StepPlan]) -> WhileStep:
        condition, body = plans
        return WhileStep(self.instruction, condition, body, self.reads, self.writes)

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        devices = [frame[0] for frame in frames]
        states = self.take(frames)
        active, trip = list(range(len(frames))), 0
        try:
            while active:
                check_time()
                if trip == most_trips() and trip_count(self.instruction) is None:
                    raise TripLimit
                trip += 1
                active = self._trip(devices, states, active, interpreter)
        except TimeLimit as limit:
            limit.where.append(f"trip {trip:,}")
            raise
        self.give(frames, states)
        free_unused(self, frames)

    def _trip(
        self, devices: list[int], states: list[list[Value]], active: list[int], interpreter: Interpreter
    ) -> list[int]:
        """Runs the condition of these frames, and the body of those that go on. Returns their numbers."""
        tests = interpreter.execute(self.condition, [self.condition.frame(devices[i], states[i]) for i in active])
        active = [i for i, test in zip(active, tests, strict=True) if test[0]]
        inner: list[Frame] = []
        for i in active:
            inner.append(self.body.frame(devices[i], states[i]))
            states[i] = []  # only the frame holds the state, and frees it step by step
        if inner:
            results = interpreter.execute(self.body, inner)
            for i in reversed(active):
                states[i] = results.pop()  # nothing else refers to the state, so that steps may change it in place
        return active


class ConditionalStep(Step):
    """Runs one branch per device. Devices that choose the same branch run it together, branches in their order.

    The first read is the predicate (true: branch 0) or the branch index (out of range: the last branch). The rest are
    the operands of all branches; `slices` gives the range of each branch.
    """

    __slots__ = ("branches", "slices")

    def __init__(
        self,
        instruction: Instruction,
        branches: Sequence[StepPlan],
        reads: Sequence[int],
        slices: Sequence[slice],
        writes: Sequence[int],
    ) -> None:
        super().__init__(instruction, reads, writes)
        self.branches = tuple(branches)
        self.slices = tuple(slices)

    def plans(self) -> tuple[StepPlan, ...]:
        return self.branches

    def with_plans(self, plans: Sequence[StepPlan]) -> ConditionalStep:
        return ConditionalStep(self.instruction, plans, self.reads, self.slices, self.writes)

    def choose(self, selector: Any) -> int:
        """Returns the number of the branch for this predicate or index."""
        if selector.dtype == np.bool_:
            return 0 if selector else 1
        index = int(selector)
        return index if 0 <= index < len(self.branches) else len(self.branches) - 1

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        taken = self.take(frames)
        chosen = [self.choose(values[0]) for values in taken]
        for number in sorted(set(chosen)):
            branch = self.branches[number]
            members = [i for i, choice in enumerate(chosen) if choice == number]
            inner = [branch.frame(frames[i][0], taken[i][self.slices[number]]) for i in members]
            for i in members:
                taken[i] = []
            self.give([frames[i] for i in members], interpreter.execute(branch, inner))
        free_unused(self, frames)


def free_unused(step: Step, frames: list[Frame]) -> None:
    """Frees results that nobody reads."""
    unused = [i for i in step.writes if i in step.dead]
    for frame in frames:
        for i in unused:
            frame[i] = None


def tree_leaves(tree: Tree) -> list[int]:
    """Returns the buffers of a tree, left to right."""
    if isinstance(tree, int):
        return [tree]
    return [i for part in tree for i in tree_leaves(part)]


def pack(tree: Tree, frame: Frame) -> Value:
    """Returns the value whose leaves lie in the buffers of the tree."""
    return frame[tree] if isinstance(tree, int) else tuple(pack(part, frame) for part in tree)


def flatten(value: Value, shape: Shape) -> list[Value]:
    """Returns the leaves of a value of this shape."""
    if not shape.is_tuple:
        return [value]
    return [leaf for part, inner in zip(value, shape.elements, strict=True) for leaf in flatten(part, inner)]


def unflatten(leaves: Sequence[Value], shape: Shape) -> Value:
    """Returns the value of this shape that has these leaves."""
    return _next_value(iter(leaves), shape)


def _next_value(leaves: Iterator[Value], shape: Shape) -> Value:
    return tuple(_next_value(leaves, element) for element in shape.elements) if shape.is_tuple else next(leaves)
