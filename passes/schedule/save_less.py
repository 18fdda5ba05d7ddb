"""Saves less in a loop for a later one, where computing it again takes less time.

    before:  forward:   s' = dynamic-update-slice(s, f(x), i)      backward:  y = dynamic-slice(s, j)
    after:   forward:   (s is gone)                                backward:  y = f(dynamic-slice(saved x, j))

`saved` has what can be computed again. A loop that differentiates `exp` or a gate saves its result beside its argument:
each takes a kernel that writes it and one that reads it in each trip, and memory traffic, where the second loop may
compute it inside of the kernel that needs it. Several arrays may have to go before that is faster: weights of attention
stay inside of its kernel once no loop saves any of them. So where no single one gains, those go that free most memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ...cost.attention import OutsideOfAttention
from ...cost.machine import Machine
from ...cost.memory import peak_memory
from ...cost.seconds import Clock
from ...cost.sizes import timed
from ...cost.timeline import timeline_seconds
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.graph.op import Role
from ..base import Pass, PassContext, run_pass
from ..cleanup.cse import CommonSubexpressions
from .saved import free_saved

_BETTER = 0.999  # of the time, that is worth another program
_STEP = 0.2  # of the peak, that goes at once where no array gains by itself
_PATIENCE = 3  # programs that save ever less, none of which is faster


@dataclass(frozen=True)
class SavingLess:
    """A program that saves so many arrays less for later loops than another one, and the seconds that it takes."""

    module: Module
    machine: Machine
    count: int
    seconds: float

    @cached_property
    def peak(self) -> int:
        """The bytes at its peak of memory."""
        return peak_memory(self.module, OutsideOfAttention.on(self.machine))


def saving_less(module: Module, machine: Machine) -> Iterator[SavingLess]:
    """Yields a program as it is, and copies that save ever less for later loops."""
    count, clock = 0, Clock.of(module, machine)
    while True:
        yield (found := SavingLess(module, machine, count, timeline_seconds(module, clock)))
        copies: dict[Instruction, Instruction] = {}
        module = clone_module(module, copies)
        clock = clock.copied(copies)
        more = free_saved(module, clock, math.inf, if_faster=True) or free_saved(module, clock, found.peak * _STEP)
        if not more:
            module.release()
            return
        run_pass(CommonSubexpressions(), module, PassContext())
        count, clock = count + more, Clock.of(module, machine)


@dataclass(frozen=True)
class SaveLess(Pass):
    """Recomputes entries of stacks in the loop that reads them if the forecast gets faster."""

    name: ClassVar[str] = "save-less"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def run(self, module: Module, context: PassContext) -> bool:
        if not any(sum(i.op.role is Role.LOOP for i in c) > 1 for c in module):
            return False
        tried, best = list[SavingLess](), 0
        for one in saving_less(module, context.machine):
            tried.append(one)
            if one.seconds <= _BETTER * tried[best].seconds:
                best = len(tried) - 1
            if len(tried) - 1 - best == _PATIENCE:
                break
        for one in (tried[n] for n in range(1, len(tried)) if n != best):
            one.module.release()
        if best:
            module.release()
            module.take(tried[best].module)
            times = f"{timed(tried[0].seconds)} become {timed(tried[best].seconds)}"
            context.diagnostics.remark(f"{self.name}: arrays that loops save no longer: {tried[best].count}; {times}")
        return best > 0
