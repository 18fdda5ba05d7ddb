"""Combines collectives: one with many operands in place of many that could run at the same time.

Each collective costs all its devices a rendezvous, whatever its size. Equal, independent collectives become one, as
long as their values stay below `most_bytes`.

    before:  g = f32[8,4] all-gather(v), dimensions={0}, replica_groups={{0,1}}
             h = f32[6]   all-gather(w), dimensions={0}, replica_groups={{0,1}}
    after:   all = (f32[8,4], f32[6]) all-gather(v, w), dimensions={0}, replica_groups={{0,1}}
             g = f32[8,4] get-tuple-element(all), index=0
             h = f32[6]   get-tuple-element(all), index=1

The level of an instruction is the largest number of combinable collectives on a path to it. Those of one level do not
depend on each other, and a dependence between combined ones leads to a higher level, so combining makes no cycle.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Exchange
from ...ir.graph.module import Module
from ...ir.ops.collective_groups import CollectiveAttributes
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.types.shape import tuple_shape
from ..base import Pass, PassContext


@brief
@dataclass(slots=True)
class _Bucket:
    """Collectives to combine, and the bytes of their operands and results."""

    members: list[Instruction] = field(default_factory=list[Instruction])
    size: int = 0


@dataclass(frozen=True)
class CombineCollectives(Pass):
    """Combines collectives of up to `most_bytes` of operands and results."""

    name: ClassVar[str] = "combine-collectives"
    most_bytes: int = 8 << 20

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in module:
            for members in _buckets(computation, self.most_bytes):
                _combine(computation, members)
                changed = True
            computation.sort()
        return changed


def _buckets(computation: Computation, most: int) -> list[list[Instruction]]:
    """Returns the collectives to combine, at least two each."""
    levels: dict[Instruction, int] = {}
    last: dict[Hashable, _Bucket] = {}
    found: list[_Bucket] = []
    for instruction in computation:
        level = levels[instruction] = max((levels[i] + _is_combinable(i) for i in instruction.needs), default=0)
        if not _is_combinable(instruction):
            continue
        size = sum(shape.byte_size for shape in (*(o.shape for o in instruction.operands), instruction.shape))
        key = (level, instruction.op, _attributes(instruction))
        bucket = last.get(key)
        if bucket is None or bucket.size + size > most:
            bucket = last[key] = _Bucket()
            found.append(bucket)
        bucket.members.append(instruction)
        bucket.size += size
    return [bucket.members for bucket in found if len(bucket.members) > 1]


def _is_combinable(instruction: Instruction) -> bool:
    exchange = instruction.op.interface(Exchange)
    if exchange is None or not exchange.joins or len(instruction.operands) != 1:
        return False
    return instruction.shape.is_array and bool(instruction.shape.num_elements) and instruction.annotation is None


def _attributes(instruction: Instruction) -> Hashable:
    """Returns a key that combined collectives must share. Groups `{}` leave the size of a group to the shapes."""
    attributes = instruction.attributes_as(CollectiveAttributes)
    scale = instruction.shape.num_elements / instruction.operands[0].shape.num_elements
    return replace(attributes, channel_id=None), attributes.channel_id is None, scale


def _combine(computation: Computation, members: list[Instruction]) -> None:
    first = members[0]
    shape = tuple_shape(tuple(m.shape for m in members))
    operands = [m.operands[0] for m in members]
    combined = computation.add(first.op, operands, first.attributes, shape, first.name, first)
    combined.sharding = combined.shardy = None
    for number, member in enumerate(members):
        element = GetTupleElementAttributes(number)
        value = computation.add("get-tuple-element", [combined], element, member.shape, member.name, member)
        computation.replace_all_uses(member, value)
    computation.remove_all(members)
