"""Remarks on a run's assumptions before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.diagnostics import Diagnostics
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.ops.calls.custom_call import behaviour_of, target_of
from ..ir.tools.placement import Placement, placements


def unplaced(places: Sequence[Placement]) -> list[int]:
    """Returns the arrays without a placement, in a per-device program of another compiler."""
    return [n for n, place in enumerate(p for p in places if p.shape.is_array) if place.tiling is None]


def remark_placements(local: Module, diagnostics: Diagnostics) -> None:
    """Remarks how inputs reach devices, and how results are shown, where the program does not specify it."""
    parameters, results = map(unplaced, placements(local))
    if parameters:
        diagnostics.remark(
            f"{_inputs(parameters)}: every device gets the same array",
            local.entry.location,
            f"an array with a first dimension of {local.devices} gives each device its own",
        )
    if results:
        diagnostics.remark(f"{_outputs(results)} shown for each device", local.entry.location)


def _inputs(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"input {numbers[0]} has no sharding"
    return f"{len(numbers)} inputs have no sharding, the first is number {numbers[0]}"


def _outputs(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"output {numbers[0]} has no sharding: it is"
    return f"{len(numbers)} outputs have no sharding: they are"


def remark_callbacks(module: Module, diagnostics: Diagnostics) -> None:
    """Remarks, once, that calls of Python functions without results have no effect here."""
    found = [i for computation in module for i in computation if _is_left_out(i)]
    if not found:
        return
    several = f" (and {len(found) - 1} more do)" if len(found) > 1 else ""
    target = target_of(found[0])
    diagnostics.remark(
        f"{found[0].name} calls a Python function that is not in the program{several}: it has no results, and is left "
        "out",
        found[0].location,
        f'hloom.custom_call("{target}"), on the command line in a file for --import, gives it a meaning',
    )


def _is_left_out(instruction: Instruction) -> bool:
    known = behaviour_of(instruction)
    if known is None or not known.is_callback:
        return False
    return not any(leaf.is_array for leaf in instruction.shape.leaves())
