"""Finds the ranges of numbers that a program demands of its inputs for meaningful results.

Each op states what it demands of its operands, given the demands on its results (`Ranges.demands`), and what is known
of its results (`Ranges.facts`). The analysis asks once forward and once backward through a computation. Ops that call
computations ask for those in turn, once per call, so that callers of one computation do not share demands.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph.attributes import Callee
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import demands, facts
from ...ir.graph.module import Module
from ...ir.graph.value_range import Columns, Demand, Fact, Range, columns, joined, meet_demands
from ...ir.time_limit import check_time
from ...ir.types.shape import Shape

# The most instructions to analyse, counting a called computation once per call; further ones demand nothing.
_MOST = 500_000
_DEEPEST = 60


def input_demands(module: Module) -> list[Demand]:
    """Returns the demands of the entry computation on the leaves of its parameters, in order; None: no demand."""
    parameters = module.entry.parameters
    count = sum(p.shape.num_leaves for p in parameters)
    results: list[Demand] = [None] * module.entry.root.shape.num_leaves
    return _Analysis().demands(module.entry, [Fact() for _ in range(count)], results)


def _body(callee: Callee) -> Computation:
    assert isinstance(callee, Computation)
    return callee


class _Analysis:
    """Analyses computations; ops receive it as their visitor."""

    def __init__(self) -> None:
        self._looked_at = 0
        self._depth = 0

    def facts(self, callee: Callee, arguments: Sequence[Fact]) -> list[Fact]:
        computation = _body(callee)
        if not self._enter(computation):
            return [Fact() for _ in range(computation.root.shape.num_leaves)]
        try:
            return self._forward(computation, arguments)[computation.root]
        finally:
            self._depth -= 1

    def demands(
        self, callee: Callee, arguments: Sequence[Fact], results: Sequence[Demand]
    ) -> list[Demand]:
        computation = _body(callee)
        if not self._enter(computation):
            return [None] * len(arguments)
        try:
            return self._backward(computation, self._forward(computation, arguments), results)
        finally:
            self._depth -= 1

    def _enter(self, computation: Computation) -> bool:
        if self._looked_at > _MOST or self._depth >= _DEEPEST:
            return False
        self._looked_at += len(computation)
        self._depth += 1
        return True

    def _forward(self, computation: Computation, arguments: Sequence[Fact]) -> dict[Instruction, list[Fact]]:
        known = dict(_by_parameter(computation, arguments))
        for instruction in computation:
            if instruction not in known:
                operands = [fact for o in instruction.operands for fact in known[o]]
                known[instruction] = facts(instruction.op, instruction.call, operands, self)
        return known

    def _backward(
        self, computation: Computation, known: dict[Instruction, list[Fact]], results: Sequence[Demand]
    ) -> list[Demand]:
        wanted: dict[Instruction, list[Demand]] = {computation.root: list(results)}
        for instruction in reversed(list(computation)):
            check_time()
            own = wanted.get(instruction) or [None] * instruction.shape.num_leaves
            own = [_unmet(*leaf) for leaf in zip(own, known[instruction], instruction.shape.leaves(), strict=True)]
            wanted[instruction] = own
            if not instruction.operands:
                continue
            operands = [fact for o in instruction.operands for fact in known[o]]
            asked = iter(self._ask(instruction, operands, own))
            for operand in instruction.operands:
                more = [_fitting(next(asked), leaf) for leaf in operand.shape.leaves()]
                before = wanted.get(operand)
                wanted[operand] = more if before is None else list(map(meet_demands, before, more))
        return [demand for p in computation.parameters for demand in wanted[p]]

    def _ask(self, instruction: Instruction, operands: Sequence[Fact], results: list[Demand]) -> list[Demand]:
        op, call = instruction.op, instruction.call
        (first, *others) = results or [None]
        if not isinstance(first, Columns) or others or not op.is_elementwise:
            return demands(op, call, operands, results, self)
        # Each element of the result depends on the same place of each operand, so columns are independent.
        asked = [demands(op, call, operands, [part], self) for part in first.parts]
        rank = call.shape.rank
        return [
            columns(first.dimension, [joined(a[n]) for a in asked]) if shape.rank == rank else joined(asked[0][n])
            for n, shape in enumerate(call.operands)
        ]


def _by_parameter(computation: Computation, facts: Sequence[Fact]) -> list[tuple[Instruction, list[Fact]]]:
    """Returns the facts of each parameter."""
    found: list[tuple[Instruction, list[Fact]]] = []
    first = 0
    for parameter in computation.parameters:
        count = parameter.shape.num_leaves
        found.append((parameter, list(facts[first : first + count])))
        first += count
    return found


def _unmet(demand: Demand, fact: Fact, shape: Shape) -> Demand:
    """Returns the demand, or None if known facts already imply it. Demands on integers stay: a value that a clamp moves
    into its range should lie in it.
    """
    found = joined(demand)
    return None if found is not None and shape.element.is_float and found.contains(fact.range) else demand


def _fitting(demand: Demand, shape: Shape) -> Demand:
    """Returns the demand in numbers of an element type."""
    if isinstance(demand, Columns):
        return columns(demand.dimension, [_of_type(part, shape) for part in demand.parts])
    return _of_type(demand, shape)


def _of_type(found: Range | None, shape: Shape) -> Range | None:
    return None if found is None or not shape.is_array else found.of_type(shape.element)
