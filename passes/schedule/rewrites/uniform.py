"""Finds values that are the same on all devices of a group.

Collectives that give all members the same result make such values, parameters that are replicated on the members are
such, and ops keep them. An element of a loop's state is uniform if it begins so and every trip keeps it, assuming that
all such elements are; nothing of a loop is uniform whose devices may run different numbers of trips.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import DeviceNumber, Draws, Exchange
from ....ir.graph.module import Module, Stage
from ....ir.graph.op import Role
from ....ir.ops.control import WhileAttributes
from ....ir.ops.structure import element_index
from ....ir.sharding.replica_groups import Groups
from ....ir.sharding.sharding import leaf_shardings
from ....ir.sharding.tiling import Tiling
from .groups import device_groups


class UniformValues:
    """Decides which values are bitwise equal on all members of each group. The module must not change meanwhile."""

    def __init__(self, module: Module, groups: Groups) -> None:
        self.module, self.groups = module, groups
        self._loops = {called: i for c in module for i in c if i.op.role is Role.LOOP for called in i.called()}
        self._states: dict[Instruction, frozenset[int]] = {}
        self._known: dict[Instruction, bool] = {}

    def holds(self, value: Instruction) -> bool:
        """Whether the value is uniform. A tuple is not: ask for its elements one by one."""
        for loop in reversed(self._around(value)):
            self._settle(loop)
        return self._value(value)

    def _around(self, value: Instruction) -> list[Instruction]:
        """Returns the loops around a value, inner first."""
        found: list[Instruction] = []
        computation = value.parent
        while computation in self._loops:
            found.append(self._loops[computation])
            computation = found[-1].parent
        return found

    def _settle(self, loop: Instruction) -> None:
        """Finds the uniform elements of a loop's state: the largest set that trips keep."""
        if loop in self._states or not loop.shape.is_tuple:
            self._states.setdefault(loop, frozenset())
            return
        attributes = loop.attributes_as(WhileAttributes)
        (start,) = loop.operands
        kept = frozenset(n for n in range(len(loop.shape.elements)) if self._element(start, n))
        while True:
            self._forget(attributes)  # what followed from more elements, in loops inside as well
            self._states[loop] = kept
            if not self._value(attributes.condition.root):
                kept = frozenset[int]()
            still = frozenset(n for n in kept if self._element(attributes.body.root, n))
            if still == self._states[loop]:
                return
            kept = still

    def _forget(self, attributes: WhileAttributes) -> None:
        stack: list[Computation] = [attributes.body, attributes.condition]
        while stack:
            for instruction in stack.pop():
                self._known.pop(instruction, None)
                self._states.pop(instruction, None)
                if instruction.op.is_control:
                    stack += instruction.called()

    def _value(self, value: Instruction) -> bool:
        stack = [value]
        while stack:
            top = stack[-1]
            waiting = [o for o in self._inputs(top) if o not in self._known] if top not in self._known else []
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if top not in self._known:
                self._known[top] = self._compute(top)
        return self._known[value]

    def _inputs(self, value: Instruction) -> Sequence[Instruction]:
        """Returns the operands on which the answer depends. Those of an element are its tuple's."""
        if value.op.role is Role.ELEMENT or value.op.role is Role.LOOP:
            return ()
        return value.operands

    def _compute(self, value: Instruction) -> bool:
        if (index := element_index(value)) is not None:
            return self._element(value.operands[0], index)
        if not value.shape.is_array or value.op.is_control:
            return False
        if value.op.role is Role.PARAMETER:
            return value.parent is self.module.entry and self._placed_alike(value)
        if _gives_all(value):
            return self._joins(value)
        op = value.op
        if op.is_collective or op.interface(DeviceNumber) or op.interface(Draws) or value.has_effect():
            return False
        return all(self._known[o] for o in value.operands)

    def _element(self, value: Instruction, index: int) -> bool:
        if value.op.role is Role.TUPLE:
            return self._value(value.operands[index])
        if value.op.role is Role.LOOP:
            self._settle(value)
            return index in self._states[value]
        if value.op.role is Role.PARAMETER and value.parent in self._loops:
            return index in self._states.get(self._loops[_of(value)], frozenset())
        return _gives_all(value) and self._joins(value)

    def _joins(self, collective: Instruction) -> bool:
        """Whether every group is part of one group of a collective."""
        of = {d: n for n, group in enumerate(device_groups(collective, self.module)) for d in group}
        return all(len({of.get(d, -1 - d) for d in group}) == 1 for group in self.groups)

    def _placed_alike(self, parameter: Instruction) -> bool:
        """Whether all members of a group get the same tile of an entry parameter."""
        if self.module.stage is Stage.GLOBAL:
            return False  # another compiler need not say where its arrays lie
        (sharding,) = leaf_shardings(parameter.annotation, 1)
        if sharding is None:
            return True
        tiling = sharding.tiling(parameter.shape.rank)
        if tiling.device is not None or tiling.manual or tiling.unreduced:
            return False
        tile = _tile_numbers(tiling, self.module.num_partitions)
        return all(len({int(tile[d % len(tile)]) for d in group}) == 1 for group in self.groups)


def _of(parameter: Instruction) -> Computation:
    assert parameter.parent is not None
    return parameter.parent


def _tile_numbers(tiling: Tiling, partitions: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the number of the tile that each partition holds."""
    place = np.arange(partitions) if tiling.order is None else np.argsort(np.asarray(tiling.order))
    number = np.zeros(partitions, np.int64)
    for digit in (d for digits in tiling.dims for d in digits):
        number = number * digit.size + place // digit.stride % digit.size
    return number


def _gives_all(value: Instruction) -> bool:
    exchange = value.op.interface(Exchange)
    return exchange is not None and exchange.gives_all
