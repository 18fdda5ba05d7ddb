"""Finds the computations that control flow runs: not those that ops apply to elements."""

from __future__ import annotations

from ..graph.computation import Computation
from ..graph.module import Module


def computations_run(module: Module) -> list[Computation]:
    """Returns the entry and the computations that control flow runs from there."""
    found = {module.entry: None}
    stack = [module.entry]
    while stack:
        for called in (c for i in stack.pop() if i.op.is_control for c in i.called()):
            if called not in found:
                found[called] = None
                stack.append(called)
    return list(found)
