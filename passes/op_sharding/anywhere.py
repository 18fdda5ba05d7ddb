"""Instructions that are not divided: structure, and values of which any device can compute any tile by itself.

Examples of such values are iotas, constants, broadcasts of replicated values, and masks computed from these. They are
rematerialized in the tiling that a user wants instead of being sent. In propagation such values make no offers, costs
count nothing for them, and the partitioner rematerializes them.
"""

from __future__ import annotations

from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Draws
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import behaviour_of
from ...ir.ops.shaping import BroadcastAttributes
from ...ir.ops.structure import OptimizationBarrier
from ...ir.tools.roll import find_roll

_STRUCTURE = frozenset({Role.PARAMETER, Role.TUPLE, Role.ELEMENT, Role.LOOP, Role.BRANCH})
DEEPEST = 64  # ops of a chain of such values, one computed from the other
_INDEPENDENT = frozenset({FactorKind.PASS, FactorKind.PERMUTATION})


def is_structure(instruction: Instruction) -> bool:
    """Whether the partitioner handles an instruction by other means than dividing it."""
    op = instruction.op
    if op.is_elementwise:
        return False
    if op.role in _STRUCTURE or isinstance(op, OptimizationBarrier):
        return True
    known = behaviour_of(instruction)
    if known is not None:
        return known.only_annotates or known.is_manual_boundary
    return find_roll(instruction) is not None


def makes_any_tile(instruction: Instruction, rule: ShardingRule) -> bool:
    """Whether an op can compute any tile of its result if its operands are replicated, or such values themselves.

    The op computes elements independently of one another or only moves them, and has no state and no side effect.
    """
    op = instruction.op
    if op.interface(Draws) or op.is_collective or op.has_side_effect(instruction.attributes) or instruction.called():
        return False
    return all(factor.kind in _INDEPENDENT for factor in rule.factors)


def is_made_of_scalars(instruction: Instruction) -> bool:
    """Whether any tile of a value can be computed without an array operand: a constant, an iota, a repeated scalar."""
    if any(o.shape.rank or not o.shape.is_array for o in instruction.operands) or not instruction.shape.is_array:
        return False
    return not is_structure(instruction) and makes_any_tile(instruction, instruction.op.sharding_rule(instruction.call))


def repeated_scalar(instruction: Instruction) -> Instruction | None:
    """Returns the scalar of a broadcast, None for other values."""
    if not isinstance(instruction.attributes, BroadcastAttributes) or not instruction.shape.rank:
        return None
    (value,) = instruction.operands
    return None if value.shape.rank else value
