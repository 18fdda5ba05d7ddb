"""Finds the computations that control flow runs: not those that ops apply to elements."""

from __future__ import annotations

from ..graph.computation import Computation
from ..graph.module import Module
from ..graph.op import AnyOp
from ..reached import reached


def computations_run(module: Module) -> list[Computation]:
    """Returns the entry and the computations that control flow runs from there."""
    return list(reached([module.entry], lambda c: (callee for i in c.having(is_control) for callee in i.called())))


def is_control(op: AnyOp) -> bool:
    """Whether an op calls computations that may contain collectives."""
    return op.is_control
