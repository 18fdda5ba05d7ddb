"""The memory of a program as XLA compiles it for CPUs: the compiler of which jaxlib states what it allocates.

XLA merges equal values, also large ones that each reader could make anew, so that a broadcast for the forward pass is
kept for the backward pass. It orders instructions so that each frees most bytes, whatever the order in the text.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..cost.memory import LiveMemory, arranged_memory
from ..cost.xla_allocation import allocate
from ..cost.xla_kernels import XlaKernels, is_broadcast
from ..ir.checked_call import checked
from ..ir.gc_pause import paused_collector
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext
from ..passes.cleanup.dce import DeadCodeElimination
from ..passes.fusion.fuse import without_tuples
from ..passes.schedule.orders import by_memory, set_orders


@checked
def xla_memory(module: Module) -> LiveMemory:
    """Returns the memory of a per-device program, compiled by XLA for CPUs."""
    with paused_collector():
        own, kernels = clone_module(module), XlaKernels()
        for computation in own:
            without_tuples(computation)
            _merge(computation)
        DeadCodeElimination().run(own, PassContext())
        set_orders(list(own), [by_memory(computation) for computation in own])
        return arranged_memory(
            own, kernels, lambda lives, pairs: allocate(lives, kernels, pairs, lives.computation is own.entry))


def _merge(computation: Computation) -> None:
    """Merges equal broadcasts and counters."""
    first: dict[Hashable, Instruction] = {}
    for value in list(computation):
        if is_broadcast(value) or (value.op.is_fusible and not value.operands):
            known = first.setdefault((value.attributes, *value.operands, value.shape), value)
            if known is not value:
                computation.replace_all_uses(value, known)
