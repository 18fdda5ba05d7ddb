"""Counts the runs of each instruction of a program: one per trip of the loops around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import AnyOp, Role
from ..ir.tools.trip_count import trip_count


@dataclass(frozen=True, slots=True)
class Execution:
    """An instruction that the entry reaches, and the number of its executions.

    `exact` is False if an unknown trip count was taken as 1. `fused` instructions are part of a fusion.
    """

    instruction: Instruction
    count: int
    exact: bool
    fused: bool = False


def runs(
    module: Module, fused: bool = False, having: Callable[[AnyOp], object] | None = None
) -> Iterator[Execution]:  # fmt: skip
    """Yields the instructions that control flow reaches from the entry, in program order; `fused` ones too if asked.
    Those alone whose op passes a test if they are wanted `having` it, which takes less time.
    """
    if having is None:
        return _runs(module.entry, 1, True, False, fused, None)

    def is_looked_at(op: AnyOp) -> bool:
        return op.is_control or op.role is Role.FUSION or bool(having(op))

    return (r for r in _runs(module.entry, 1, True, False, fused, is_looked_at) if having(r.instruction.op))


def _runs(
    computation: Computation, count: int, exact: bool, inside: bool, fused: bool,
    having: Callable[[AnyOp], object] | None,
) -> Iterator[Execution]:  # fmt: skip
    for instruction in computation if having is None else computation.having(having):
        yield Execution(instruction, count, exact, inside)
        fusion = instruction.op.role is Role.FUSION
        if instruction.op.is_control or (fused and fusion):
            trips = trip_count(instruction) if instruction.op.role is Role.LOOP else 1
            times, known = (count, False) if trips is None else (count * trips, exact)
            for called in instruction.called():
                yield from _runs(called, times, known, inside or fusion, fused, having)
