"""Saves less in a loop for a later one, where computing it again takes less time.

    before:  forward:   s' = dynamic-update-slice(s, f(x), i)      backward:  y = dynamic-slice(s, j)
    after:   forward:   (s is gone)                                backward:  y = f(dynamic-slice(saved x, j))

`saved` has what can be computed again. A loop that differentiates `exp` or a gate saves its result beside its argument:
each takes a kernel that writes it and one that reads it in each trip, and memory traffic, where the second loop may
compute it inside of the kernel that needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...cost.seconds import Clock
from ...cost.sizes import timed
from ...cost.timeline import timeline_seconds
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.graph.op import Role
from ..base import Pass, PassContext
from .saved import free_saved

_BETTER = 0.999  # of the time, that is worth another program


@dataclass(frozen=True)
class SaveLess(Pass):
    """Recomputes entries of stacks in the loop that reads them while the forecast gets faster."""

    name: ClassVar[str] = "save-less"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def run(self, module: Module, context: PassContext) -> bool:
        if not any(sum(i.op.role is Role.LOOP for i in c) > 1 for c in module):
            return False
        clock = Clock.of(module, context.machine)
        before = least = timeline_seconds(module, clock)
        count = 0
        while True:
            copies: dict[Instruction, Instruction] = {}
            new = clone_module(module, copies)
            more = free_saved(new, clock.copied(copies), math.inf, if_faster=True)
            clock = Clock.of(new, context.machine)
            seconds = timeline_seconds(new, clock) if more else math.inf
            if seconds > _BETTER * least:
                new.release()
                break
            module.release()
            module.take(new)
            count, least = count + more, seconds
        if count:
            times = f"{timed(before)} become {timed(least)}"
            context.diagnostics.remark(f"{self.name}: arrays that loops save no longer: {count}; {times}")
        return count > 0
