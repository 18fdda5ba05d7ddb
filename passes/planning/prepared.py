"""Prepares a program for planning: as for propagation, without annotations, and without the tuples of inlined calls,
behind which the analyses of kernels cannot see.
"""

from __future__ import annotations

from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Role
from ...ir.ops.structure import element_index
from .. import pipelines
from ..annotating.strip import strip_annotations
from ..base import PassContext, run_pipeline
from ..cleanup.dce import DeadCodeElimination

PREPARE = tuple(p for p in pipelines.PROPAGATE if p.name not in ("propagate", "device-orders"))


def prepared(module: Module) -> Module:
    """Returns a prepared copy of a GLOBAL module."""
    found = clone_module(module)
    strip_annotations(found)
    context = PassContext(num_devices=1, default_devices=1)
    run_pipeline(PREPARE, found, context)
    for computation in found:
        for instruction in list(computation):
            place = element_index(instruction)
            if place is not None and instruction.operands[0].op.role is Role.TUPLE:
                computation.replace_all_uses(instruction, instruction.operands[0].operands[place])
    run_pipeline([DeadCodeElimination()], found, context)
    return found
