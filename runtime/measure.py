"""Measures where the time of a run goes, and the peak rates of the machine.

`StepTimes` is an observer of the interpreter: the time between two of its calls belongs to the step that ended, so
loops and calls count only the time outside of their bodies.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from functools import cache

import numpy as np

from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.op import Role
from .plan.interpreter import Frame, Step, StepPlan
from .plan.steps import StartStep, WaitStep

_SIDE = 768  # of the matrices whose product is the peak of multiply-adds
_BYTES = 1 << 26  # of the array whose copy is the peak of memory
_SECONDS = 0.2  # for each peak


class Part(StrEnum):
    """Parts of a run. `WAITING` is the time until started collectives have finished; in one process there is none."""

    PRODUCTS = "products"
    FUSED = "fused loops"
    OTHER = "other ops"
    COLLECTIVES = "collectives"
    WAITING = "waiting"

    @staticmethod
    def of(step: Step) -> Part:
        """Returns the part to which a step belongs."""
        if isinstance(step.acting, StartStep):
            return Part.COLLECTIVES
        if isinstance(step.acting, WaitStep):
            return Part.WAITING
        return Part.of_op(step.instruction)

    @staticmethod
    def of_op(instruction: Instruction) -> Part:
        """Returns the part to which an instruction that computes belongs."""
        if instruction.op.algebra_of(instruction.call) is Algebra.BILINEAR:
            return Part.PRODUCTS
        return Part.FUSED if instruction.op.role is Role.FUSION else Part.OTHER


class StepTimes:
    """An observer that adds up the seconds of each part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[Part, float] = defaultdict(float)
        self._last = 0.0

    def begin(self, plan: StepPlan, frames: list[Frame]) -> None:
        self._last = self._last or time.perf_counter()

    def after(self, plan: StepPlan, step: Step, frames: list[Frame]) -> None:
        now = time.perf_counter()
        self.seconds[Part.of(step)] += now - self._last
        self._last = time.perf_counter()  # what observing takes belongs to no step


@cache
def peak_flops() -> float:
    """Returns the floating-point operations per second of a product of f32 matrices by numpy's library, as measured
    once in a process.
    """
    x, y = (np.full((_SIDE, _SIDE), 0.5, np.float32) for _ in range(2))
    out = np.empty_like(x)
    return 2 * _SIDE**3 / _least(lambda: np.matmul(x, y, out=out))


@cache
def peak_bytes() -> float:
    """Returns the bytes per second that copying a large array reads and writes, as measured once in a process."""
    x = np.zeros(_BYTES, np.uint8)
    out = np.empty_like(x)
    out[:] = x  # the first write fetches pages
    return 2 * _BYTES / _least(lambda: np.copyto(out, x))


def _least(step: Callable[[], object]) -> float:
    """Returns the least seconds of a call."""
    least, end = float("inf"), time.perf_counter() + _SECONDS
    while (start := time.perf_counter()) < end:
        step()
        least = min(least, time.perf_counter() - start)
    return least
