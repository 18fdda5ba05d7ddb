"""Evaluates predicates and trip counts that depend on a device's number alone.

Values are computed on demand, from constants and device numbers, by the kernels of the ops. Values that depend on data
(parameters, collectives, random numbers, effects) are unknown, and so are expensive ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..brief import brief
from ..graph.attributes import ParameterAttributes
from ..graph.instruction import Instruction
from ..graph.interfaces import DeviceNumber, Draws, movement
from ..graph.op import NotEvaluable, Role, ShapeError, Value
from ..ops.control import WhileAttributes, branch_selector
from ..ops.elementwise import no_computation
from ..ops.starts import Starts
from ..ops.structure import element_index

MOST_TRIPS = 1 << 10
_MOST_ELEMENTS = 1 << 12
Path = tuple[int, ...]


class UnknownValue(Exception):
    """The value does not follow from the device number."""


@brief
@dataclass(eq=False, slots=True)
class CallFrame:
    """One run of a computation: the origins of its parameters' values. `made` caches computed values."""

    arguments: tuple[tuple[Instruction, CallFrame], ...] = ()
    made: dict[tuple[Instruction, Path], Value] = field(default_factory=dict[tuple[Instruction, Path], Value])


class Known:
    """Values on one device, which is this replica and partition."""

    def __init__(self, replica: int, partition: int) -> None:
        self.place = replica, partition
        self._entry = CallFrame()
        self._frames: dict[Any, CallFrame] = {}
        self._loops: dict[tuple[Instruction, CallFrame], list[CallFrame]] = {}

    def frame(self, calls: Sequence[tuple[Instruction, int]]) -> CallFrame:
        """Returns the frame that a chain of calls leads to: instructions, and which argument they pass on, from the
        entry on. Of a loop it is the first run.
        """
        frame = self._entry
        for caller, argument in calls:
            frame = self._called(caller, argument, frame)
        return frame

    def selector(self, instruction: Instruction, frame: CallFrame) -> int:
        """Returns the branch that a conditional takes, or the number of trips of a loop. Raises UnknownValue."""
        if instruction.op.role is Role.LOOP:
            return len(self._runs(instruction, frame)) - 1
        return self._branch(instruction, frame)

    def value(self, instruction: Instruction, frame: CallFrame, path: Path = ()) -> Value:
        """Returns the part of a value at an index into its tuples. Raises UnknownValue."""
        key = instruction, path
        if key not in frame.made:
            try:
                frame.made[key] = self._value(instruction, frame, path)
            except (NotEvaluable, ShapeError, RecursionError) as error:
                raise UnknownValue from error
        return frame.made[key]

    def _value(self, instruction: Instruction, frame: CallFrame, path: Path) -> Value:
        op, operands = instruction.op, instruction.operands
        if op.role is Role.PARAMETER:
            if not frame.arguments:
                raise UnknownValue
            return self.value(*frame.arguments[instruction.attributes_as(ParameterAttributes).number], path)
        if (index := element_index(instruction)) is not None:
            return self.value(operands[0], frame, (index, *path))
        if op.role is Role.TUPLE and path:
            return self.value(operands[path[0]], frame, path[1:])
        if op.role in (Role.CALL, Role.FUSION):
            return self.value(instruction.called()[0].root, self._called(instruction, -1, frame), path)
        if op.role is Role.BRANCH:
            number = self._branch(instruction, frame)
            return self.value(instruction.called()[number].root, self._called(instruction, number + 1, frame), path)
        if op.role is Role.LOOP:
            return self.value(*self._runs(instruction, frame)[-1].arguments[0], path)
        if movement(op).forwards_leaves and op.role is not Role.TUPLE:
            return self.value(operands[0], frame, path)
        if (device := op.interface(DeviceNumber)) is not None:
            return np.asarray(device.number(*self.place), instruction.shape.element.numpy)
        acts = op.is_collective or op.interface(Draws) or op.has_side_effect(instruction.attributes)
        shape = instruction.shape
        if acts or op.interface(Starts) or path or not shape.is_array or shape.num_elements > _MOST_ELEMENTS:
            raise UnknownValue
        return op.kernel(instruction.call, no_computation)(*[self.value(o, frame) for o in operands])

    def _branch(self, instruction: Instruction, frame: CallFrame) -> int:
        selector = instruction.operands[0]
        return branch_selector(selector.shape, len(instruction.operands) - 1)(self.value(selector, frame))

    def _called(self, caller: Instruction, argument: int, frame: CallFrame) -> CallFrame:
        """Returns the frame of an instruction's callee, with one of its operands as argument, or with all (-1)."""
        key = caller, argument, frame
        if key not in self._frames:
            passed = caller.operands if argument < 0 else caller.operands[argument : argument + 1]
            self._frames[key] = CallFrame(tuple((operand, frame) for operand in passed))
        return self._frames[key]

    def _runs(self, loop: Instruction, frame: CallFrame) -> list[CallFrame]:
        """Returns the frames of all runs of a loop's condition; the last is that which ends it. Raises UnknownValue."""
        key = loop, frame
        if key in self._loops:
            return self._loops[key]
        attributes = loop.attributes_as(WhileAttributes)
        runs = [self._called(loop, 0, frame)]
        while self.value(attributes.condition.root, runs[-1]):
            if len(runs) > MOST_TRIPS:
                raise UnknownValue
            runs.append(CallFrame(((attributes.body.root, runs[-1]),)))
        self._loops[key] = runs
        return runs
