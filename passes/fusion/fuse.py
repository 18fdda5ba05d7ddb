"""The pass `fusion`: replaces groups of instructions by `fusion` instructions.

    before:  e = f32[8,64] exponential(x)
             s = f32[8] reduce(e, zero), dimensions={1}
             b = f32[8,64] broadcast(s), dimensions={0}
             r = f32[8,64] divide(e, b)
    after:   r = f32[8,64] fusion(x), kind=kInput, calls=fused

A fusion reads and writes memory once, where its ops would each read their operands and write their results. It stands
where its last op stood if the order is a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...ir.analysis.fusion_groups import MOST, Group, Groups, Stands
from ...ir.analysis.fusion_values import FusionValues
from ...ir.graph.attributes import ParameterAttributes
from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role, op_named
from ...ir.ops.control import FusionAttributes, FusionKind
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.tools.control_flow import computations_run
from ..base import Pass, PassContext
from ..cleanup.dce import DeadCodeElimination
from .blocks import BLOCK_SIZES, Blocks, BlockSizes
from .chain import is_product


@dataclass(frozen=True)
class FusionPass(Pass):
    """Fuses element-wise ops, broadcasts, transposes and reductions. `most` limits the ops of a fusion. With `blocks`,
    products are first made in blocks where that pays; the last three options say where (`BlockSizes`).
    """

    name: ClassVar[str] = "fusion"
    most: int = MOST
    blocks: bool = True
    least: int = BLOCK_SIZES.least
    rows: int = BLOCK_SIZES.rows
    streamed: int = BLOCK_SIZES.streamed

    def run(self, module: Module, context: PassContext) -> bool:
        changed, sizes = False, BlockSizes(self.least, self.rows, self.streamed)
        for computation in computations_run(module):
            changed |= without_tuples(computation)
        for computation in computations_run(module) if self.blocks else ():
            changed |= _in_blocks(computation, Blocks(computation, module.has_schedule, sizes), context)
        if changed:
            DeadCodeElimination().run(module, context)
        names = module.unique_computation_names("fused_computation")
        for computation in computations_run(module):
            groups, order = Groups(computation, self.most, module.has_schedule), list(computation)
            for instruction in computation if context.explain else ():
                if instruction.name == context.explain and not (self.blocks and is_product(instruction)):
                    context.answer(groups.why(instruction), instruction.location)
            for group in groups.found():
                with computation.at(after=order[group.last] if module.has_schedule else None):
                    found = _fused(computation, groups.values, group, names)
                changed |= found is not None
                if found is not None:
                    module.add_computation(found)
            computation.sort()
        if changed:
            module.computations = module.callees_first()
            DeadCodeElimination().run(module, context)
        return changed


def _in_blocks(computation: Computation, blocks: Blocks, context: PassContext) -> bool:
    """Makes products in blocks, and answers for them."""
    asked = computation.find(context.explain) if context.explain else None
    reason = blocks.why(asked) if asked is not None else None
    if asked is not None and reason is not None:
        context.answer(reason, asked.location)
    return blocks.make()


def without_tuples(computation: Computation) -> bool:
    """Forwards the operands of a tuple to the readers of its elements, which inlined calls leave."""
    changed = False
    for element in list(computation):
        if element.op.role is Role.ELEMENT and element.operands[0].op.role is Role.TUPLE:
            index = element.attributes_as(GetTupleElementAttributes).index
            computation.replace_all_uses(element, element.operands[0].operands[index])
            changed = True
    return changed


def _fused(computation: Computation, values: FusionValues, group: Group, names: Iterator[str]) -> Computation | None:
    """Makes one instruction of a group, of a single op only if it reads values that need not be stored; returns the
    computation that the new instruction calls.
    """
    results = [m for m in group.members if values.is_read_outside(m, group.members)]
    if not results:  # dead code
        return None
    body = Computation(next(names))
    operands = _Body(body, values).copy(group, results)
    folds = any(stands in (Stands.ROW, Stands.COLUMN) for stands in group.members.values())
    attributes = FusionAttributes(FusionKind.INPUT if folds else FusionKind.LOOP, body)
    fusion = computation.add("fusion", operands, attributes, body.root.shape, "fusion", results[-1])
    for index, result in enumerate(results):
        value = fusion
        if len(results) > 1:
            element = GetTupleElementAttributes(index)
            value = computation.add("get-tuple-element", [fusion], element, result.shape, result.name, result)
        value.sharding, value.shardy = result.sharding, result.shardy
        value.frontend_attributes = result.frontend_attributes
        computation.replace_all_uses(result, value)
    return body


class _Body:
    """A fused computation being made."""

    def __init__(self, body: Computation, values: FusionValues) -> None:
        self._body = body
        self._values = values
        self._copies: dict[Instruction, Instruction] = {}
        self._operands: list[Instruction] = []

    def copy(self, group: Group, results: list[Instruction]) -> list[Instruction]:
        """Copies a group and the free values that it reads; returns the stored values that become operands."""
        for member in group.members:
            for value in member.operands:
                self._provide(value, group)
            self._clone(member)
        if len(results) > 1:
            copies = [self._copies[r] for r in results]
            self._body.root = self._body.add("tuple", copies)
        else:
            self._body.root = self._copies[results[0]]
        return self._operands

    def _provide(self, value: Instruction, group: Group) -> None:
        if value in self._copies:
            return
        if not self._values.is_free(value):
            parameter = ParameterAttributes(len(self._operands))
            self._operands.append(value)
            self._copies[value] = self._body.add(
                op_named("parameter"), [], parameter, value.shape, f"param_{parameter.number}"
            )
            return
        for operand in value.operands:
            self._provide(operand, group)
        self._clone(value)

    def _clone(self, instruction: Instruction) -> None:
        operands = [self._copies[o] for o in instruction.operands]
        self._copies[instruction] = clone_instruction(self._body, instruction, operands, lambda callee: callee)
