"""Gathers arrays of floats in a shorter type, and computes with them in their own.

    before:  w = f32[..] all-gather(x)
    after:   q, s = shortened x     all-gather(q), all-gather(s)     w = f32[..] multiply(convert(q), broadcast(s))

Eight bits have a scale per block (`scaled`); bf16 and f16 are plain conversions. What arrives is rounded once, by no
more than the remark says. FSDP gathers weights, which ZeRO++ (Wang et al., 2023, section 3.1) sends so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ....cost.collectives import kind_of
from ....ir.graph.instruction import Instruction
from ....ir.ops.collectives import AllGatherAttributes
from ....ir.types.element_type import ElementType
from .base import Edits, MatchingRewrite, RewriteProgram, amount, is_plain_collective
from .exchange_types import SCALED, exchange_in, exchange_type, unit_of_rounding
from .groups import device_groups
from .scaled import Costs, ScaledExchange, block_size


@dataclass(frozen=True)
class GatherIn(MatchingRewrite["_Gather"]):
    """Gathers floats in the type `element`."""

    name: ClassVar[str] = "gather-in"
    stays: ClassVar[str] = "is gathered in its type"
    element: str = "bf16"

    def match(self, program: RewriteProgram, instruction: Instruction) -> _Gather | str | None:
        wanted, own = exchange_type(self.element, "pass gather-in cannot gather in"), instruction.shape.element
        if not instruction.op.is_collective or kind_of(instruction) != "all-gather":
            return None
        if not is_plain_collective(instruction):
            return "it has several arrays, or an annotation"
        if not own.is_float or own.byte_size <= wanted.byte_size:
            return None
        (dim,) = instruction.attributes_as(AllGatherAttributes).dimensions
        outer = math.prod(instruction.shape.dims[:dim])
        if self.element not in SCALED:
            return _Gather(wanted, outer)
        block = block_size(instruction.operands[0].shape.num_elements // max(outer, 1))
        if not block:
            return "its parts are too small for blocks with a scale"
        costs = Costs.of(program, instruction, device_groups(instruction, program.module), wanted, block)
        return costs.objection or _Gather(wanted, outer, block, costs)

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Gather) -> None:
        size, own, short = instruction.shape.num_elements, instruction.shape.element, found.element
        with edits.computation.at(before=instruction):
            if self.element in SCALED:
                exchange = ScaledExchange(program, edits.computation, instruction, short, found.block)
                parts = exchange.shorten(instruction.operands[0], found.outer)
                groups = device_groups(instruction, program.module)
                new = exchange.result(exchange.lengthen(exchange.gather(parts, groups)))
                effect = (f"an error of at most {exchange.rounding:.2g} of the largest magnitude in each block of "
                          f"{found.block}; {found.costs}")  # fmt: skip
            else:
                given = instruction.attributes_as(AllGatherAttributes)
                attributes = replace(given, channel_id=program.fresh_channel(given))
                new = exchange_in(program, edits, instruction, short, attributes)
                sizes = f"{amount(size * own.byte_size)} become {amount(size * short.byte_size)}"
                effect = f"an error of at most {unit_of_rounding(short):.2g} of each number; {sizes}"
        edits.replace(instruction, new)
        program.remark(instruction, f"is gathered in {short.name}: {effect}")


@dataclass(frozen=True, slots=True)
class _Gather:
    """The type of a gather, its rows around the gathered dimension; with scales, a block's elements and the costs."""

    element: ElementType
    outer: int
    block: int = 1
    costs: Costs | None = None
