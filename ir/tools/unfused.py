"""Modules without fusions, or without calls: each becomes the ops of its computation."""

from __future__ import annotations

from collections.abc import Container

from ..graph.clone import inlined
from ..graph.computation import Computation
from ..graph.module import Module, clone_module
from ..graph.op import Role


def unfused(module: Module, roles: Container[Role | None] = (Role.FUSION,)) -> Module:
    """Returns a copy without fusions, or ops of these roles; the module itself if it has none."""
    if not any(i.op.role in roles for computation in module for i in computation):
        return module
    copy = clone_module(module)
    for computation in copy.callees_first():
        _unfuse(computation, roles)
    bodies = {c.name for computation in module for i in computation if i.op.role in roles for c in i.called()}
    called = {c for computation in copy for i in computation for c in i.called()}
    copy.computations = [c for c in copy if c in called or c.name not in bodies]
    return copy


def _unfuse(computation: Computation, roles: Container[Role | None]) -> None:
    """Replaces the fusions of a computation; the computations that they call have none any more."""
    for fusion in [i for i in computation if i.op.role in roles]:
        result = inlined(computation, fusion.called()[0], fusion.operands)
        if fusion.annotation is not None and result not in fusion.operands:
            result.sharding, result.shardy = fusion.sharding, fusion.shardy
        for predecessor in fusion.control_predecessors:
            result.control_predecessors = (*result.control_predecessors, predecessor)
        computation.replace_all_uses(fusion, result)
        computation.remove(fusion)
    computation.sort()
