"""Removes the annotations of a program, so that its shardings can be found or given anew."""

from __future__ import annotations

from ...ir.checked_call import checked
from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.ops.calls.custom_call import behaviour_of, is_annotation
from ...ir.sharding.sharding import Sharding, ShardingKind
from ...ir.tools.spmd import is_region_boundary, sole_device, without_shardy

_FIRST = Sharding(ShardingKind.MAXIMAL, device=0)


@checked
def strip_annotations(module: Module) -> None:
    """Removes all shardings, meshes and custom-calls that only annotate from a GLOBAL module, in place.

    The program then is one for any number of devices. Sharding rules of custom-calls stay, since they describe the
    call; those that one device makes for their effects are left to one, the first. Raises CompileError for a manual
    region, whose shardings are part of its meaning, and for a program that is not GLOBAL.
    """
    if module.stage is not Stage.GLOBAL:
        fail(f"annotations are those of a program before propagation, {module.name} is {module.stage.value}")
    border = next((i for c in module for i in c if is_region_boundary(i)), None)
    if border is not None:
        fail(f"{border.name} begins or ends a manual region, whose shardings the program needs", border.location,
             help="shardings are found for a program without the region: call its function outside of shard_map, with "
                  "jax.numpy in place of its collectives; `forecast` and `schedule` take the program as it is")
    for computation in module:
        gone: list[Instruction] = []
        for instruction in computation:
            known = behaviour_of(instruction)
            if is_annotation(instruction):
                (value,) = instruction.operands
                computation.replace_all_uses(instruction, value)
                gone.append(instruction)
            elif known is not None and known.only_annotates and not instruction.shape.num_leaves:
                gone.append(instruction)
            else:
                instruction.sharding = None if sole_device(instruction) is None else _FIRST
                instruction.shardy = None
                instruction.frontend_attributes = without_shardy(instruction.frontend_attributes)
        computation.remove_all(gone)
    module.meshes, module.num_partitions = {}, 1
    module.frontend_attributes = without_shardy(module.frontend_attributes)
    module.allow_propagation_to_parameters = module.allow_propagation_to_output = None
