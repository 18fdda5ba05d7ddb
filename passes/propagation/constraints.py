"""Constraints of a program on propagation: sharding groups tie values, barriers restrict directions.

HLO shardings spell groups `shard_as N` or `shard_like N`, Shardy spells them as `xla.sdy.ShardingGroup` custom-calls.
All values of a group form one relation, like the values of an element-wise op. Barriers are custom-calls that compute
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...ir.diagnostics import Diagnostics, fail
from ...ir.factors.sharding_rule import elementwise_rule
from ...ir.graph.instruction import Instruction
from ...ir.ops.calls.custom_call import target_of
from ...ir.tools.spmd import parts
from .values import Leaf, PropagationDirection, RuleRelation, ValueGraph

Group = tuple[str, int]

_DIRECTIONS = (
    PropagationDirection.NONE, PropagationDirection.FORWARD, PropagationDirection.BACKWARD, PropagationDirection.BOTH,
)  # fmt: skip
_BARRIERS = {"ShardBarrierFrom": PropagationDirection.BACKWARD, "ShardBarrierTo": PropagationDirection.FORWARD}


def apply_constraints(graph: ValueGraph, diagnostics: Diagnostics) -> None:
    """Adds the relations of groups and sets the directions that barriers allow. Reports errors as diagnostics."""
    for relation in graph.relations:
        target = target_of(relation.instruction)
        if target is not None:
            relation.allowed = _allowed(target, relation.instruction)
    groups: dict[Group, dict[Leaf, Instruction]] = {}
    for group, leaf, instruction in _members(graph):
        groups.setdefault(group, {}).setdefault(leaf, instruction)
    for (kind, number), members in groups.items():
        leaves = list(members)
        odd = next((x for x in leaves if x.shape.dims != leaves[0].shape.dims), None)
        if odd is not None:
            diagnostics.error(
                f"{members[odd].name} in {kind} {number} is {odd.shape.without_layout()}, "
                f"{members[leaves[0]].name} is {leaves[0].shape.without_layout()}", members[odd].location,
                help="values of one sharding group must have the same dimensions")
        elif len(leaves) > 1:
            shapes = [x.shape for x in leaves]
            depth = max(graph.depths[i] for i in members.values())
            graph.relate(RuleRelation(elementwise_rule(shapes[:1], shapes[1:]), leaves, members[leaves[0]], depth))


def _members(graph: ValueGraph) -> Iterator[tuple[Group, Leaf, Instruction]]:
    for instruction, leaves in graph.leaves.items():
        if "xla.sdy.sharding_group_id" in instruction.frontend_attributes:
            number = _number(instruction, "xla.sdy.sharding_group_id", "")
            for operand in instruction.operands:
                yield from ((("sharding group", number), leaf, instruction) for leaf in graph.leaves[operand])
        for place, sharding in enumerate(parts(instruction.annotation)):
            if sharding.group is not None:
                yield from (((sharding.group.kind, sharding.group.number), leaf, instruction)
                            for leaf in leaves[place : place + 1])


def _allowed(target: str, instruction: Instruction) -> PropagationDirection:
    """Returns the directions in which shardings may pass a custom-call."""
    if target == "xla.sdy.PropagationBarrier":
        return _DIRECTIONS[_number(instruction, "xla.sdy.allowed_direction", "0") % 4]
    return _BARRIERS.get(target, PropagationDirection.BOTH)


def _number(instruction: Instruction, key: str, default: str) -> int:
    """Reads the number in an attribute such as `"2 : i64"`. Raises CompileError."""
    text = str(instruction.frontend_attributes.get(key, default))
    match = re.match(r"\s*(\d+)\s*(:|$)", text)
    if match is None:
        fail(f"{instruction.name}: {key} is '{text}', a number is expected", instruction.location)
    return int(match[1])
