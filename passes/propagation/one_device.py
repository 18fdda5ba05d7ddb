"""Makes the program of the device where there is only one: nothing is divided, so the program is taken as it is, with
the shardings of its interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import EntryLayout, Module, Stage
from ...ir.sharding.sharding import REPLICATED, AnySharding, TupleSharding
from ...ir.tools.spmd import is_per_device, is_region_boundary
from ..base import Pass, PassContext
from .devices import num_devices


def is_undivided(module: Module, context: PassContext) -> bool:
    """Whether a GLOBAL module is for one device, and says nothing of devices."""
    said = any(i.annotation is not None or is_region_boundary(i) for computation in module for i in computation)
    taken = said or is_per_device(module) or context.has_own_forms
    return not taken and num_devices(module, context) == 1


@dataclass(frozen=True)
class OneDevice(Pass):
    """Turns a module for one device into its LOCAL form, in place. Raises CompileError for a module for several."""

    name: ClassVar[str] = "one-device"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.GLOBAL})
    produces: ClassVar[Stage | None] = Stage.LOCAL

    def run(self, module: Module, context: PassContext) -> bool:
        count = num_devices(module, context)
        if count != 1:
            fail(f"{module.name} is for {count} devices", help="spmd-partition divides programs, after propagate")
        entry = module.entry
        shapes = [p.shape.without_layout() for p in entry.parameters]
        module.global_layout = EntryLayout(tuple(shapes), entry.root.shape.without_layout())
        module.entry_layout, module.meshes = None, {}
        for instruction in (*entry.parameters, entry.root):
            instruction.sharding = _replicated(instruction)
        return True


def _replicated(instruction: Instruction) -> AnySharding:
    shape = instruction.shape
    return TupleSharding((REPLICATED,) * shape.num_leaves) if shape.is_tuple else REPLICATED
