"""Computes numbers that follow from the device number, where values follow from such numbers and from data.

    i = u32[] partition-id()          0 1 2 3
    h = u32[] divide(i, two)          0 0 1 1: the same on devices 0 and 1, which the variation of i does not show

Only scalars of programs for not too many devices are computed, one per class of devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.instruction import Instruction
from ..graph.interfaces import DeviceNumber, Draws
from ..graph.op import NotEvaluable, Role, ShapeError, Value
from ..ops.elementwise import no_computation
from ..ops.starts import Starts
from ..tools.process_grid import ProcessGrid
from .variation import Variation, Variations

_MOST_CLASSES = 1 << 10


class Numbers:
    """The numbers of one run of a computation: per instruction, a value for each class of its variation."""

    def __init__(self, variations: Variations, grid: ProcessGrid) -> None:
        self._variations = variations
        self._grid = grid
        self._known: dict[Instruction, tuple[Variation, list[Value]]] = {}

    def refined(self, instruction: Instruction, found: Any, operands: list[Any]) -> Any:
        """Returns the variation of a number by its values, where these are known; else the given one."""
        if not isinstance(found, Variation) or not instruction.shape.is_scalar:
            return found
        op, known = instruction.op, self._known
        if (number := op.interface(DeviceNumber)) is not None:
            places = [self._grid.place_of(device) for device in self._firsts(found)]
            known[instruction] = found, [np.asarray(number.number(*p), instruction.shape.element.numpy) for p in places]
            return found
        acts = op.is_collective or op.interface(Draws) or op.is_control or op.has_side_effect(instruction.attributes)
        is_made = instruction.operands or op.role is Role.CONSTANT
        if acts or not is_made or op.interface(Starts) or any(o not in known for o in instruction.operands):
            return found
        devices = self._firsts(found)
        if len(devices) > _MOST_CLASSES:
            return found
        try:
            kernel = op.kernel(instruction.call, no_computation)
            with np.errstate(all="ignore"):
                values = [kernel(*[self._value(o, device) for o in instruction.operands]) for device in devices]
        except (NotEvaluable, ShapeError):
            return found
        texts = [bytes(np.asarray(value).tobytes()) for value in values]
        variation = self._variations.by([texts[int(n)] for n in found.classes])
        by_text = dict(zip(texts, values, strict=True))
        first = self._firsts(variation)
        known[instruction] = variation, [by_text[texts[int(found.classes[device])]] for device in first]
        return variation

    def _firsts(self, variation: Variation) -> list[int]:
        """Returns the first device of each class."""
        return sorted(np.unique(variation.classes, return_index=True)[1].tolist())

    def _value(self, operand: Instruction, device: int) -> Value:
        variation, values = self._known[operand]
        return values[int(variation.classes[device])]
