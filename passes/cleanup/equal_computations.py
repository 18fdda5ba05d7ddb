"""Equal computations: ops that apply equal computations to elements apply the same one.

XLA's frontends write a computation per use: the sum over a dimension comes with its own `add`, in every layer. Calls of
different computations differ, so all that is found once per call (sharding rules, decisions, costs) would be found once
per layer. Computations are equal if their instructions are, in the same order, apart from names and places.

    before:  a = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
             b = f32[] reduce(y, zero), dimensions={0}, to_apply=sum.1
    after:   b = f32[] reduce(y, zero), dimensions={0}, to_apply=sum
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.attributes import Attributes
from ...ir.graph.clone import map_called
from ...ir.graph.computation import Computation
from ...ir.graph.interfaces import Applies
from ...ir.graph.module import Module
from ...ir.tools.content import content
from ..base import Pass, PassContext


@dataclass(frozen=True)
class EqualComputations(Pass):
    """Merges equal computations that are applied to elements, and removes those that nothing calls any more."""

    name: ClassVar[str] = "equal-computations"

    def run(self, module: Module, context: PassContext) -> bool:
        first = equal_callees(module)
        one_of: dict[Attributes, Attributes] = {}  # equal ones are one object, so that they are found by identity
        kept, changed = {module.entry}, False
        for computation in module.callees_first():
            for instruction in computation.calling():
                called = instruction.called()
                if called and instruction.op.interface(Applies):
                    attributes = instruction.attributes
                    if any(first[callee] is not callee for callee in called):
                        attributes = map_called(attributes, first.__getitem__)
                        changed = True
                    one = one_of.setdefault(attributes, attributes)
                    if one is not instruction.attributes:
                        instruction.attributes = one
                        called = instruction.called()
                kept.update(called)
        gone = {c for c, equal in first.items() if equal is not c and c not in kept}
        module.computations = [c for c in module.computations if c not in gone]
        return changed


def equal_callees(module: Module) -> dict[Computation, Computation]:
    """Returns the first of equal computations for each one that is applied to elements."""
    seen: dict[Hashable, Computation] = {}
    first: dict[Computation, Computation] = {}
    for computation in module.callees_first():
        for instruction in computation.calling():
            for callee in instruction.called() if instruction.op.interface(Applies) else ():
                if callee not in first:
                    first[callee] = seen.setdefault(content(callee, first), callee)
    return first
