"""Brings a module from stage to stage: whole, divided among devices, scheduled. Commands, `compile`, forecasts, reports
and plans all go this way, so that they say the same time of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module, Stage, clone_module
from ..ir.tools.spmd import is_per_device
from .base import PassContext, run_pass, run_pipeline
from .pipelines import COMPILED, exchange_in_types, partition
from .propagation.one_device import is_undivided

if TYPE_CHECKING:
    from .schedule.fastest import Fastest

During = Callable[[str], AbstractContextManager[None]]  # surrounds each part of the work, given its name


def unseen(part: str) -> AbstractContextManager[None]:
    """Shows nothing of a part of the work."""
    return nullcontext()


def to_local(module: Module, context: PassContext, during: During = unseen) -> Module:
    """Partitions a module in place, unless it is the program of each device already; returns it. The devices of both
    exchange floats in the types of the context. Raises CompileError.
    """
    if is_per_device(module):
        run_pipeline(COMPILED, module, context)
        exchange_in_types(module, context)
        return module
    with during("simplifying" if is_undivided(module, context) else "partitioning"):
        partition(module, context)
    return module


def divided_states(module: Module, context: PassContext) -> Module | None:
    """Returns a copy of a program, not yet partitioned, whose optimizer states, and weights that are used in a shorter
    type, are divided among the devices that see different data; None if it has no such states.
    """
    if module.stage is not Stage.GLOBAL or is_per_device(module) or is_undivided(module, context):
        return None
    from .annotating.sharded_optimizer import ShardedOptimizer
    from .cleanup.inline import CallInliner
    from .cleanup.synchronous import Synchronous

    divided, unheard = clone_module(module), replace(context, diagnostics=Diagnostics(), records=[])
    run_pipeline([Synchronous(), CallInliner()], divided, unheard)
    return divided if run_pass(ShardedOptimizer(weights=True), divided, unheard) else None


def to_scheduled(
    module: Module, context: PassContext, memory: int | None = 0, form: str = "variadic", flat: bool = False,
    during: During = unseen, split: int = 0, divided: Module | None = None, fastest: Fastest | None = None,
) -> bool:
    """Schedules the program of each device, in place, within `memory` bytes of a device (0: those of the machine); None
    keeps its order. `flat` joins parameters that are gathered together, `split` is the number of parts in which the
    batch may be computed, and `fastest` may say which rewrites are tried.

    `divided` is the program with divided optimizer states (`divided_states`), which is tried as well; returns whether
    it was better. Raises CompileError.
    """
    if memory is None:
        if flat:
            from .schedule.flat_parameters import FlatParameters

            run_pipeline([FlatParameters()], module, context)
        return False
    from .scheduling import schedule  # by many files, which only schedules need

    def scheduled(program: Module, own: PassContext) -> Module:
        with during("scheduling"):
            return schedule(program, own, memory, form, flat, fastest, split)

    if divided is None:
        scheduled(module, context)
        return False
    from .optimizer_states import schedule_faster

    limit, until = float(memory or context.machine.capacity), math.inf if fastest is None else fastest.until
    return schedule_faster(
        module, divided, context, scheduled, lambda one, own: to_local(one, own, during), limit, until
    )  # fmt: skip


def partition_and_schedule(module: Module, context: PassContext, memory: int = 0, split: int = 0) -> Module:
    """Makes a module the program of each device in its order, in place, unless it is; returns it. Options are those of
    `to_scheduled`. Raises CompileError.
    """
    divided = divided_states(module, context)
    to_local(module, context)
    limit = None if module.has_schedule else memory
    to_scheduled(module, context, limit, split=split, divided=divided)
    return module
