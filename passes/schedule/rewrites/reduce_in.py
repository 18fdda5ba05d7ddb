"""Adds numbers of devices in another type than that of the arrays.

    before:  g = bf16[..] reduce-scatter(x)
    after:   w = f32[..] convert(x)   s = f32[..] reduce-scatter(w)   g = bf16[..] convert(s)

A wider type loses nothing while the devices add, and sends more; a narrower one sends less, and rounds: k devices add
with an error of at most k units of rounding of the sum of the magnitudes (Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 4.2). What was converted just before, or is converted back just after, is not rounded.

Devices cannot add numbers of eight bits that have a scale per block (`scaled`). So each sends every other the part that
this one adds, by an all-to-all, and adds in f32; a sum that all devices need is gathered in eight bits again. Gradients
of ZeRO++ (Wang et al., 2023, section 3.3) travel so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ....cost.collectives import kind_of
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import Exchange
from ....ir.graph.monoid import reduction_monoid
from ....ir.ops.collective_groups import CollectiveAttributes
from ....ir.types.element_type import ElementType
from .base import Edits, MatchingRewrite, RewriteProgram, amount, is_plain_collective
from .exchange_types import SCALED, exchange_in, exchange_type, unit_of_rounding
from .groups import device_groups, positions
from .scaled import Costs, ScaledExchange, block_size


@dataclass(frozen=True)
class ReduceIn(MatchingRewrite["_Sum"]):
    """Sums all-reduces and reduce-scatters of floats in the type `element`."""

    name: ClassVar[str] = "reduce-in"
    stays: ClassVar[str] = "is reduced in its type"
    element: str = "f32"

    def match(self, program: RewriteProgram, instruction: Instruction) -> _Sum | str | None:
        exchange = instruction.op.interface(Exchange)
        reducer: Any = getattr(instruction.attributes, "to_apply", None)
        if exchange is None or not exchange.joins or reducer is None:
            return None
        wanted, own = exchange_type(self.element, "pass reduce-in cannot sum in"), instruction.operands[0].shape.element
        if not own.is_float or own is wanted:
            return None
        if not is_plain_collective(instruction):
            return "it has several arrays, or an annotation"
        if reduction_monoid(reducer) is not Monoid.ADD:
            return "it is no sum"
        return _blocks(program, instruction, wanted) if self.element in SCALED else _Sum(wanted)

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Sum) -> None:
        with edits.computation.at(before=instruction):
            if found.block:
                new, effect = _in_blocks(program, edits, instruction, found)
            else:
                given: Any = instruction.attributes
                channel = program.fresh_channel(instruction.attributes_as(CollectiveAttributes))
                reducer = program.reducer(Monoid.ADD, found.element)
                attributes = replace(given, to_apply=reducer, channel_id=channel)
                new = exchange_in(program, edits, instruction, found.element, attributes)
                devices = max(map(len, device_groups(instruction, program.module)))
                effect = _effect(instruction, instruction.shape.element, found.element, devices)
        edits.replace(instruction, new)
        program.remark(instruction, effect)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The type of a sum; with scales, its rows around the scattered dimension, a block's elements and the costs."""

    element: ElementType
    outer: int = 1
    block: int = 0
    costs: Costs | None = None


def _blocks(program: RewriteProgram, instruction: Instruction, element: ElementType) -> _Sum | str:
    groups, value = device_groups(instruction, program.module), instruction.operands[0]
    given: Any = instruction.attributes
    if positions(groups, program.devices) is None or program.module.num_partitions not in (1, program.devices):
        return "its groups are no equal parts of all devices"
    outer = math.prod(value.shape.dims[: given.dimensions[0]]) if kind_of(instruction) == "reduce-scatter" else 1
    parts, rest = divmod(value.shape.num_elements // max(outer, 1), len(groups[0]))
    block = 0 if rest else block_size(parts)
    if not block:
        return "parts of devices are too small or uneven for blocks with a scale"
    costs = Costs.of(program, instruction, groups, element, block)
    return costs.objection or _Sum(element, outer, block, costs)


def _in_blocks(
    program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Sum
) -> tuple[Instruction, str]:  # fmt: skip
    """Emits a sum in eight bits. Returns it, and its effect."""
    exchange = ScaledExchange(program, edits.computation, instruction, found.element, found.block)
    value, groups = instruction.operands[0], device_groups(instruction, program.module)
    total = exchange.scatter(exchange.shorten(value, found.outer), groups)
    share = f"{exchange.rounding:.2g}"
    error = f"an error of at most {share} of the sum of the devices' largest magnitudes"
    if kind_of(instruction) == "all-reduce":
        total = exchange.lengthen(exchange.gather(exchange.shorten(total, found.outer), groups))
        error += f" and {share} of the largest sum"
    effect = (f"is summed in {exchange.wide.name}, sent in {found.element.name}: {error} in each block of "
              f"{found.block}; {found.costs}")  # fmt: skip
    return exchange.result(total), effect


def _effect(instruction: Instruction, own: ElementType, wanted: ElementType, devices: int) -> str:
    """Describes the effect of another type of floats: the bound of the error, and the bytes."""
    size = max(instruction.shape.num_elements, instruction.operands[0].shape.num_elements)
    sizes = f"{amount(size * own.byte_size)} become {amount(size * wanted.byte_size)}"
    unit = unit_of_rounding(wanted)
    if unit < unit_of_rounding(own):
        return f"is summed in {wanted.name}, with less error than in {own.name}: {sizes}"
    bound = devices * unit / (1 - devices * unit) if devices * unit < 1 else float("inf")
    return f"is summed in {wanted.name}: an error of at most {bound:.2g} of the sum of magnitudes; {sizes}"
