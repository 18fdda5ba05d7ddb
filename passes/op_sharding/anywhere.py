"""What is no op to divide: structure, and values of which any device can make any tile for itself.

Iotas, constants, broadcasts of what every device holds anyway, masks computed from such: where somebody wants such a
value in other tiles, it is made again and not sent. Propagation gives such values no say, costs count nothing for them,
and the partitioner makes them again.
"""

from __future__ import annotations

from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import CustomCallAttributes, behaviour
from ...ir.ops.shaping import BroadcastAttributes
from ...ir.ops.structure import OptimizationBarrier
from ...ir.tools.roll import find_roll

_STRUCTURE = frozenset({Role.PARAMETER, Role.TUPLE, Role.ELEMENT, Role.LOOP, Role.BRANCH})
_INDEPENDENT = frozenset({FactorKind.PASS, FactorKind.PERMUTATION})


def is_structure(instruction: Instruction) -> bool:
    """Whether the partitioner has another way with an instruction than to divide it."""
    if isinstance(instruction.attributes, CustomCallAttributes):
        known = behaviour(instruction.attributes)
        return known.only_annotates or known.is_manual_boundary
    op = instruction.op
    return op.role in _STRUCTURE or isinstance(op, OptimizationBarrier) or find_roll(instruction) is not None


def makes_any_tile(instruction: Instruction, rule: ShardingRule) -> bool:
    """Whether an op makes any tile of its result where its operands are whole, or are such values themselves.

    It computes elements independently of one another or only moves them, and has no state and no effect.
    """
    op = instruction.op
    if op.is_stateful or op.is_collective or op.has_side_effect(instruction.attributes) or instruction.called():
        return False
    return all(factor.kind in _INDEPENDENT for factor in rule.factors)


def is_made_of_scalars(instruction: Instruction) -> bool:
    """Whether any tile of a value is made without an array: a constant, an iota, a scalar repeated."""
    if any(o.shape.rank or not o.shape.is_array for o in instruction.operands) or not instruction.shape.is_array:
        return False
    return not is_structure(instruction) and makes_any_tile(instruction, instruction.op.sharding_rule(instruction.call))


def repeated_scalar(instruction: Instruction) -> Instruction | None:
    """The scalar that an array visibly repeats."""
    if not isinstance(instruction.attributes, BroadcastAttributes) or not instruction.shape.rank:
        return None
    (value,) = instruction.operands
    return None if value.shape.rank else value
