"""The content of computations: a key that equal ones share, whatever the names of their instructions."""

from __future__ import annotations

from collections.abc import Hashable

from ..graph.computation import Computation


def content(computation: Computation) -> Hashable:
    """Returns a key that equal computations share. Those that they call must be the same."""
    numbers = {instruction: number for number, instruction in enumerate(computation)}
    return numbers[computation.root], computation.execution_thread, tuple(
        (i.op, tuple([numbers[o] for o in i.operands]), i.attributes, i.shape, i.config_and_rule, i.sharding, i.shardy,
         tuple([numbers[p] for p in i.control_predecessors]))
        for i in numbers)
