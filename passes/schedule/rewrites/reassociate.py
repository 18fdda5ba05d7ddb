"""Reassociates all-reduces: combines first on each device, then over the devices, once.

    before:  a = all-reduce(x), to_apply=add
             b = all-reduce(y), to_apply=add
             c = add(a, b)
    after:   c = all-reduce(add(x, y)), to_apply=add

The op must be that of the reductions, their groups must be the same, and nothing else may read them. A conversion of
floats to a wider type may stand between: the devices then reduce in the wider type. (Integers wrap around in the
narrower type before they are widened, so they may not.) A chain of several ends with one all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ....ir.brief import brief
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import reduction_monoid
from ....ir.graph.op import op_named
from ....ir.ops.collectives import AllReduce, AllReduceAttributes
from ....ir.sharding.replica_groups import Groups
from .base import (
    Edits,
    MatchingRewrite,
    RewriteProgram,
    is_conversion,
    is_plain_collective,
    only_user,
    time_text,
    widens_floats,
)
from .groups import are_equal, device_groups


@dataclass(frozen=True)
class ReassociateAllReduces(MatchingRewrite["_Match"]):
    """Merges two all-reduces whose results their own reduction op combines."""

    name: ClassVar[str] = "reassociate-all-reduces"
    stays: ClassVar[str] = "its operands stay two all-reduces"

    def match(self, program: RewriteProgram, instruction: Instruction) -> _Match | str | None:
        """Matches an op on two all-reduces. Returns the match, or why it fails; None for other instructions."""
        if len(instruction.operands) != 2 or instruction.called():
            return None
        first, second = (_below_conversion(o) for o in instruction.operands)
        if not (isinstance(first.op, AllReduce) and isinstance(second.op, AllReduce)):
            return None
        monoids = {reduction_monoid(r.attributes_as(AllReduceAttributes).to_apply) for r in (first, second)}
        monoid = monoids.pop()
        if monoids or monoid is None or instruction.op is not op_named(monoid.value):
            return "they are not reduced by this op"
        if first is second or any(only_user(v) is None for v in (first, second, *instruction.operands)):
            return "something else reads them"
        if not (is_plain_collective(first) and is_plain_collective(second)):
            return "one has several arrays, or an annotation"
        for operand, reduced in zip(instruction.operands, (first, second), strict=True):
            if operand is not reduced and not widens_floats(operand):
                return "the conversion between is not one of floats to a wider type"
        groups, others = (device_groups(r, program.module) for r in (first, second))
        if not are_equal(groups, others):
            return "their groups differ"
        times = [program.time("all-reduce", v.shape.byte_size, groups) for v in (first, second, instruction)]
        if times[2] > times[0] + times[1]:
            return f"one of the wider type takes {time_text(times[2])}, both {time_text(times[0] + times[1])}"
        return _Match((first, second), groups, monoid, times[0] + times[1], times[2])

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Match) -> None:
        computation, first = edits.computation, found.reduced[0]
        attributes = first.attributes_as(AllReduceAttributes)
        element = instruction.shape.element
        with computation.at(before=instruction):
            operands = [
                r.operands[0] if o is r else computation.add(o.op, (r.operands[0],), o.attributes, o.shape, like=o)
                for o, r in zip(instruction.operands, found.reduced, strict=True)
            ]
            op, shape = instruction.op, instruction.shape
            local = computation.add(op, operands, instruction.attributes, shape, like=instruction)
            if element is not first.shape.element:
                attributes = replace(attributes, to_apply=program.reducer(found.monoid, element))
            attributes = replace(attributes, channel_id=program.fresh_channel(attributes))
            new = computation.add(first.op, (local,), attributes, instruction.shape, first.name, like=first)
            new.frontend_attributes = first.frontend_attributes
        program.remark(
            instruction, f"is computed before one all-reduce in place of two: {time_text(found.after)} in place of "
            f"{time_text(found.before)}",
        )  # fmt: skip
        edits.replace(instruction, new)


@brief
@dataclass(frozen=True, slots=True)
class _Match:
    """The two all-reduces below an op, their groups and monoid, and the times before and after in picoseconds."""

    reduced: tuple[Instruction, Instruction]
    groups: Groups
    monoid: Monoid
    before: float
    after: float


def _below_conversion(value: Instruction) -> Instruction:
    return value.operands[0] if is_conversion(value) else value
