"""Prepares a program for planning: as for propagation, without annotations, and without the tuples of inlined calls,
behind which the analyses of kernels cannot see.

Entries of stacks that one loop saves for another may be computed again, before the program is divided (`save_less`): if
the stacks take more memory than all devices have, or if that takes less time than to write and to read them. The
scheduler would save less for memory last. So plans divide the program that will run.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph.module import Module, clone_module
from .. import pipelines
from ..annotating.strip import strip_annotations
from ..base import PassContext, run_pipeline
from ..cleanup.dce import DeadCodeElimination
from ..cleanup.tuple_elements import bypass_tuples
from ..schedule.save_less import SavingLess

PREPARE = tuple(p for p in pipelines.PROPAGATE if p.name not in ("propagate", "device-orders"))
_WORTH = 1.02  # times the fastest, up to which a program that saves more is preferred
_FULL = 0.9  # share of the memory of all devices that an evenly divided program may take; collectives need some


def prepared(module: Module) -> Module:
    """Returns a prepared copy of a GLOBAL module."""
    found = clone_module(module)
    strip_annotations(found)
    context = PassContext(num_devices=1, default_devices=1)
    run_pipeline(PREPARE, found, context)
    for computation in found:
        bypass_tuples(computation)
    run_pipeline([DeadCodeElimination()], found, context)
    return found


def fastest_within(levels: Sequence[SavingLess], memory: float) -> Module:
    """Returns the fastest program, of those that fit into this many bytes of all devices; the smallest if none fits. Of
    those that hardly differ it is the first.
    """
    fitting = [one for one in levels if one.peak <= _FULL * memory] or [min(levels, key=lambda one: one.peak)]
    least = min(one.seconds for one in fitting)
    return next(one.module for one in fitting if one.seconds <= least * _WORTH)
