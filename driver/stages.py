"""Brings a module from stage to stage: whole, divided among devices, scheduled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module, Stage, clone_module
from ..ir.tools.spmd import is_per_device
from ..passes.base import PassContext, run_pass, run_pipeline
from ..passes.pipelines import exchange_in_types, partition
from ..passes.propagation.one_device import is_undivided

During = Callable[[str], AbstractContextManager[None]]  # surrounds each part of the work, given its name


def unseen(part: str) -> AbstractContextManager[None]:
    """Shows nothing of a part of the work."""
    return nullcontext()


def to_local(module: Module, context: PassContext, during: During = unseen) -> Module:
    """Partitions a module in place, unless it is the program of each device already; returns it. The devices of both
    exchange floats in the types of the context. Raises CompileError.
    """
    if is_per_device(module):
        exchange_in_types(module, context)
        return module
    with during("simplifying" if is_undivided(module, context) else "partitioning"):
        partition(module, context)
    return module


def divided_states(module: Module, context: PassContext) -> Module | None:
    """Returns a copy of a program, not yet partitioned, whose optimizer states are divided among the devices that see
    different data; None if it has no such states.
    """
    if module.stage is not Stage.GLOBAL or is_per_device(module) or is_undivided(module, context):
        return None
    from ..passes.annotating.sharded_optimizer import ShardedOptimizer
    from ..passes.cleanup.inline import CallInliner
    from ..passes.cleanup.synchronous import Synchronous

    divided, unheard = clone_module(module), replace(context, diagnostics=Diagnostics(), records=[])
    run_pipeline([Synchronous(), CallInliner()], divided, unheard)
    return divided if run_pass(ShardedOptimizer(), divided, unheard) else None


def to_scheduled(
    module: Module, context: PassContext, memory: int | None, form: str = "variadic", flat: bool = False,
    during: During = unseen, split: int = 0, divided: Module | None = None,
) -> Module:
    """Schedules the program of each device within `memory` bytes of a device (0: those of the machine); None keeps its
    order. `flat` joins parameters that are gathered together, and `split` is the number of parts in which the batch may
    be computed. `divided` is the program with divided optimizer states (`divided_states`), which is tried as well.
    Works in place, and returns the module. Raises CompileError.
    """
    if memory is not None:
        from ..passes.scheduling import schedule  # by many files, which only schedules need

        def scheduled(program: Module, own: PassContext) -> Module:
            with during("scheduling"):
                return schedule(program, own, memory, form, flat, split=split)

        if divided is None:
            scheduled(module, context)
        else:
            from .optimizer_states import schedule_faster

            schedule_faster(module, divided, context, during, scheduled)
    elif flat:
        from ..passes.schedule.flat_parameters import FlatParameters

        run_pipeline([FlatParameters()], module, context)
    return module
