"""All ways to divide an op by the axes of one mesh: each axis divides one factor of its rule, or none.

Which ways are legal, and the time of the exchanges of local forms, is found once for equal calls. Axes of equal size
and equal links are alike: ways that differ in the names of such axes share one answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from ...cost.formulas import Kind
from ...cost.machine import SECOND
from ...ir.graph.op import AnyOp, OpCall
from ...ir.sharding.digit import Digits, merge, product
from ...ir.sharding.tiling import Tiling
from ..resharding.table import WHOLE, Division
from .assignment import Assignment, OpSharding, all_expressible
from .decide import Decider

_ILLEGAL = math.inf


class Divisions:
    """The divisions of ops by these axes, given as the digits of each. Those in which calls exchange nothing are
    `idle` on all machines, which may share the set.

    In the division of an op the places are factors of its rule.
    """

    def __init__(self, decider: Decider, axes: Sequence[Digits], idle: set[object] | None = None) -> None:
        self._idle: set[object] = set() if idle is None else idle
        self.decider, self.axes, self.sizes = decider, tuple(axes), tuple(map(product, axes))
        self._alike = _alike(decider, self.axes)
        self._known: dict[tuple[AnyOp, OpCall[Any], Division], float] = {}

    def every(self, op: AnyOp, call: OpCall[Any]) -> Iterator[tuple[Division, float]]:
        """Yields the legal divisions of a call, each with the seconds in which its local form exchanges data."""
        factors = range(len(self.decider.uses.of(op, call, (), None).rule.factors))
        alone = [
            [f for f in factors if self.exchanged(op, call, self._only(axis, f)) < _ILLEGAL]
            for axis in range(len(self.axes))
        ]
        for division in itertools.product(*([WHOLE, *legal] for legal in alone)):
            seconds = self.exchanged(op, call, division)
            if seconds < _ILLEGAL:
                yield division, seconds

    def exchanged(self, op: AnyOp, call: OpCall[Any], division: Division) -> float:
        """Returns the seconds of the exchange of an op's local form; infinity if the division is not legal.

        A legal one divides factors by which tiles can be computed, and every value of the op can express it.
        """
        key = op, call, self.canonical(division)
        found = self._known.get(key)
        if found is None:
            found = 0.0 if (*key, self.axes) in self._idle else self._exchanged(op, call, key[2])
            self._known[key] = found
            if found == 0.0:
                self._idle.add((*key, self.axes))
        return found

    def assignment(self, division: Division) -> Assignment:
        """Returns the digits of each factor. Axes of one factor are in the order of the mesh."""
        found: dict[int, list[Any]] = {}
        for axis, factor in zip(self.axes, division):
            if factor != WHOLE:
                found.setdefault(factor, []).extend(axis)
        return {factor: merge(digits) for factor, digits in found.items()}

    def _exchanged(self, op: AnyOp, call: OpCall[Any], division: Division) -> float:
        assignment = self.assignment(division)
        use = self.decider.uses.of(op, call, (), None)
        rule, form = use.rule, self.decider.forms.of(op.opcode, call.attributes)
        whole = tuple(Tiling.replicated(shape.rank) for shape in use.shapes)
        sharding = self._sharding(op, call, whole, form)
        if not all(map(sharding.divisible, assignment)) or not all_expressible(rule, assignment):
            return _ILLEGAL
        if sharding.exchanged is None or not assignment:
            return 0.0
        tilings = tuple(sharding.by_rule(value, assignment) for value in range(len(whole)))
        sharding = self._sharding(op, call, tilings, form)
        seconds = sharding.exchanged(sharding, assignment) if sharding.exchanged else 0.0
        for value in range(len(rule.operands), len(whole)):  # where the form leaves it
            left = sharding.tiling(value, assignment)
            if left != tilings[value]:
                seconds += sharding.plan(left, tilings[value], sharding.shapes[value]).cost
        return seconds / SECOND

    def _sharding(self, op: AnyOp, call: OpCall[Any], tilings: tuple[Tiling, ...], form: Any) -> OpSharding:
        use = self.decider.uses.of(op, call, tilings, None)
        return OpSharding(use, self.decider.devices, self.decider.machine, form, use.rule, None)

    def _only(self, axis: int, factor: int) -> Division:
        return tuple(factor if a == axis else WHOLE for a in range(len(self.axes)))

    def canonical(self, division: Division) -> Division:
        """Sorts the factors of axes that are alike."""
        found = list(division)
        for group in self._alike:
            for axis, factor in zip(group, sorted(division[a] for a in group)):
                found[axis] = factor
        return tuple(found)


def _alike(decider: Decider, axes: Sequence[Digits]) -> list[list[int]]:
    """Returns the axes in groups that have the same size, and the same costs of all collectives."""
    groups: dict[Any, list[int]] = {}
    for number, axis in enumerate(axes):
        costs = tuple(decider.machine.collective(kind, axis) for kind in get_args(Kind))
        groups.setdefault((product(axis), costs), []).append(number)
    return list(groups.values())
