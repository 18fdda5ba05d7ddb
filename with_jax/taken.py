"""Refuses programs that Hloom cannot take over from JAX, each reason at the user's line."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.diagnostics import Diagnostics, Location
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.ops.calls.behaviour import CustomCallAttributes
from ..ir.ops.calls.custom_call import is_unknown

TRIED = ("cpu",)
"""The platforms on which programs of Hloom have run inside of JAX."""


def require_taken(module: Module, place: Location | None, platform: str, platforms: tuple[str, ...]) -> None:
    """Raises CompileError with everything in the program of a function at a place that cannot run on JAX's devices in
    Hloom's hands.
    """
    diagnostics = Diagnostics()
    if platform not in platforms:
        diagnostics.error(
            f"the devices are those of {platform}, which is not among platforms={platforms!r}; Hloom has been tried "
            f"on {', '.join(TRIED)}", place,
            f"hloom.jax.jit(.., platforms={(*platforms, platform)!r}) tries it",
        )  # fmt: skip
    for computation in module:
        for instruction in computation:
            for message, help in _obstacles(instruction):
                diagnostics.error(message, instruction.location, help)
    diagnostics.raise_errors()


def _obstacles(instruction: Instruction) -> Iterator[tuple[str, str | None]]:
    """Yields messages with their help."""
    if any(any(leaf.dynamic) for leaf in instruction.shape.leaves()):
        yield f"{instruction.name} has a dynamic shape, {instruction.shape.without_layout()}", None
    attributes = instruction.attributes
    if not isinstance(attributes, CustomCallAttributes):
        return
    if is_unknown(instruction):
        target = attributes.custom_call_target
        yield (f'{instruction.name} is a custom-call of "{target}", of which Hloom knows nothing',
               f'hloom.custom_call("{target}") says what it computes and how it is divided')
