"""Counts the runs of each instruction of a program: one per trip of the loops around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.tools.trip_count import trip_count


@dataclass(frozen=True, slots=True)
class Run:
    """An instruction that the entry reaches, and the number of its executions.

    `exact` is False if an unknown trip count was taken as 1.
    """

    instruction: Instruction
    count: int
    exact: bool


def runs(module: Module, fused: bool = False) -> Iterator[Run]:
    """Yields the instructions that control flow reaches from the entry, in program order; `fused` ones too if asked."""
    return _runs(module.entry, 1, True, fused)


def _runs(computation: Computation, count: int, exact: bool, fused: bool) -> Iterator[Run]:
    for instruction in computation:
        yield Run(instruction, count, exact)
        if instruction.op.is_control or (fused and instruction.op.role is Role.FUSION):
            trips = trip_count(instruction) if instruction.op.role is Role.LOOP else 1
            for called in instruction.called():
                yield from _runs(called, count * (1 if trips is None else trips), exact and trips is not None, fused)
