"""Evaluates scalar expressions of `partition-id` on all devices, exactly.

The offset of a tile is arithmetic on the device number or an entry of a table. It has no other inputs, so the ops' own
kernels compute each device's value here, and a rewrite is proved for every device.
"""

from __future__ import annotations

import numpy as np

from ..graph.instruction import Instruction
from ..graph.interfaces import DeviceNumber, Draws, takes_arrays
from ..graph.op import NotEvaluable, Role, ShapeError
from ..ops.elementwise import no_computation
from ..ops.structure import constant_array
from ..tools.process_grid import ProcessGrid
from ..types.literal import Array

_MOST = 1 << 22  # elements of a value on all devices together


class PerDevice:
    """Evaluates values that depend on the device alone, once each. The module must not change them meanwhile."""

    def __init__(self, grid: ProcessGrid) -> None:
        self.grid, self.devices = grid, grid.size
        self._known: dict[Instruction, Array | None] = {}

    def value(self, instruction: Instruction) -> Array | None:
        """Returns an array [devices, ..] with the value on each device; None if it depends on anything else."""
        stack = [instruction]
        while stack:
            top = stack[-1]
            waiting = [] if top in self._known else [o for o in top.operands if o not in self._known]
            if waiting and self._may_follow(top):
                stack += waiting
                continue
            stack.pop()
            if top not in self._known:
                self._known[top] = None if waiting else self._compute(top)
        return self._known[instruction]

    def _may_follow(self, i: Instruction) -> bool:
        pure = not (i.op.is_collective or i.op.is_control or i.op.interface(Draws) or i.has_effect())
        return pure and i.shape.is_array and not i.called() and i.shape.num_elements * self.devices <= _MOST

    def _compute(self, i: Instruction) -> Array | None:
        if (device := i.op.interface(DeviceNumber)) is not None:
            numbers = [device.number(*self.grid.place_of(d)) for d in range(self.devices)]
            return np.array(numbers, i.shape.element.numpy)
        if i.op.role is Role.CONSTANT:
            literal = constant_array(i)
            return None if literal is None else np.broadcast_to(literal, (self.devices, *literal.shape))
        if i.op.role is Role.PARAMETER or not self._may_follow(i):
            return None
        values = [self._known[o] for o in i.operands]
        if any(v is None for v in values) or not i.shape.element.numpy:
            return None
        try:
            kernel = i.op.kernel(i.call, no_computation)
            with np.errstate(all="ignore"):
                if takes_arrays(i.op, i.call) and all(o.shape.is_scalar for o in i.operands):
                    return np.asarray(kernel(*values)).reshape(self.devices)
                return np.stack([np.asarray(kernel(*(np.asarray(v[d]) for v in values if v is not None)))
                                 for d in range(self.devices)])  # fmt: skip
        except (NotEvaluable, ShapeError):
            return None


def clamped_starts(per: PerDevice, slice_: Instruction, first: int, sizes: tuple[int, ...]) -> Array | None:
    """Returns the starts [devices, rank] of a dynamic slice (or update) whose start indices are the operands from
    `first` on, clamped to the bounds. None where a start is not known.
    """
    whole = slice_.operands[0].shape.dims
    indices = slice_.operands[first:]
    if len(indices) == 1 and indices[0].shape.rank == 1:
        vector = per.value(indices[0])
        columns = None if vector is None else [vector[:, n] for n in range(len(whole))]
    else:
        found = [
            np.zeros(per.devices, np.int64) if size == n else per.value(i)
            for i, n, size in zip(indices, whole, sizes, strict=True)
        ]
        columns = None if any(f is None for f in found) else found
    if columns is None:
        return None
    limits = [n - size for n, size in zip(whole, sizes, strict=True)]
    return np.stack([np.clip(np.asarray(c).astype(np.int64), 0, limit) for c, limit in zip(columns, limits)], -1)
