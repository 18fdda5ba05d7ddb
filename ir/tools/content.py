"""The content of computations: a key that equal ones share, whatever the names of their instructions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..graph.attributes import Attributes
from ..graph.clone import map_called
from ..graph.computation import Computation
from ..graph.instruction import Instruction


def content(computation: Computation, first: Mapping[Computation, Computation] | None = None) -> Hashable:
    """Returns a key that equal computations share. Those that they call must be the same, or have the same `first`."""
    first = first or {}
    numbers = {instruction: number for number, instruction in enumerate(computation)}
    return numbers[computation.root], computation.execution_thread, tuple(
        (i.op, tuple([numbers[o] for o in i.operands]), _mapped(i, first), i.shape, i.config_and_rule, i.sharding,
         i.shardy, tuple([numbers[p] for p in i.control_predecessors]))
        for i in numbers)


def _mapped(instruction: Instruction, first: Mapping[Computation, Computation]) -> Attributes:
    """Returns the attributes of an instruction, which refer to the first of equal computations."""
    attributes = instruction.attributes
    if any(first.get(called, called) is not called for called in instruction.called()):
        return map_called(attributes, lambda called: first.get(called, called))
    return attributes
