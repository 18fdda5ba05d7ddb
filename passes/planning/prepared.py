"""Prepares a program for planning: as for propagation, without annotations, and without the tuples of inlined calls,
behind which the analyses of kernels cannot see.
"""

from __future__ import annotations

from ...ir.graph.module import Module, clone_module
from .. import pipelines
from ..annotating.strip import strip_annotations
from ..base import PassContext, run_pipeline
from ..cleanup.dce import DeadCodeElimination
from ..cleanup.tuple_elements import bypass_tuples

PREPARE = tuple(p for p in pipelines.PROPAGATE if p.name not in ("propagate", "device-orders"))


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
