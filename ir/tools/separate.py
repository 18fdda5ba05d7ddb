"""Modules with a collective per array, where the readers of a module take no combined ones.

HLO, and schedules, combine several arrays in one collective. In StableHLO reduce-scatters, permutes and broadcasts take
one array each, and XLA's conversion from it refuses the others, too, in manual regions. XLA combines single ones again,
up to a size that it chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import Exchange
from ..graph.module import Module, clone_module
from ..ops.collective_groups import channel_of


def separate(module: Module) -> Module:
    """Returns a copy with a collective per array; the module itself if it has no combined ones."""
    if not any(_is_combined(i) for computation in module for i in computation):
        return module
    copy = clone_module(module)
    channels = free_channels(copy)
    for computation in copy:
        for instruction in [i for i in computation if _is_combined(i)]:
            with computation.at(before=instruction):
                parts = _separated(computation, instruction, channels)
            computation.replace_all_uses(instruction, parts)
            computation.remove(instruction)
    return copy


def _is_combined(instruction: Instruction) -> bool:
    """Whether a collective has a result per operand, of several. A permute in place has other operands besides."""
    count = len(instruction.operands)
    exchange = instruction.op.interface(Exchange) if count > 1 else None
    return exchange is not None and exchange.divides and len(instruction.shape.elements) == count


def _separated(computation: Computation, old: Instruction, channels: Iterator[int]) -> Instruction:
    """Returns the tuple of a collective per operand."""
    attributes: Any = old.attributes
    parts: list[Instruction] = []
    for operand, shape in zip(old.operands, old.shape.elements, strict=True):
        own: Any = {} if attributes.channel_id is None else {"channel_id": next(channels)}
        part = computation.add(old.op, (operand,), dataclasses.replace(attributes, **own), shape, like=old)
        part.frontend_attributes, part.control_predecessors = old.frontend_attributes, old.control_predecessors
        parts.append(part)
    joined = computation.add("tuple", parts, like=old)
    joined.sharding, joined.shardy = old.sharding, old.shardy
    return joined


def free_channels(module: Module) -> Iterator[int]:
    """Yields channels that the module does not use."""
    used = [channel_of(i) or 0 for computation in module for i in computation]
    number = max(used, default=0)
    while True:
        number += 1
        yield number
