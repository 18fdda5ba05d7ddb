"""Brings a module from stage to stage: whole, divided among devices, scheduled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ..ir.graph.module import Module
from ..ir.tools.spmd import is_per_device
from ..passes.base import PassContext, run_pipeline
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


def to_scheduled(
    module: Module, context: PassContext, memory: int | None, form: str = "variadic", flat: bool = False,
    during: During = unseen, split: int = 0,
) -> Module:
    """Schedules the program of each device within `memory` bytes of a device (0: those of the machine); None keeps its
    order. `flat` joins parameters that are gathered together, and `split` is the number of parts in which the batch may
    be computed. Works in place, and returns the module. Raises CompileError.
    """
    if memory is not None:
        from ..passes.scheduling import schedule  # by many files, which only schedules need

        with during("scheduling"):
            schedule(module, context, memory, form, flat, split=split)
    elif flat:
        from ..passes.schedule.flat_parameters import FlatParameters

        run_pipeline([FlatParameters()], module, context)
    return module
