"""Divides a computation into tables of kernels, as `runtime/native/arrange.py` makes them, and ops between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ....ir.analysis.awaited import InFlight
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import PassesOn
from ....ir.graph.op import Role

STRUCTURE = frozenset({Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT})


def tables_of(
    computation: Computation, runs_alone: Callable[[Instruction], bool]
) -> tuple[list[list[Instruction]], list[Instruction]]:
    """Returns the kernels and views of each table, and the ops that run outside of tables.

    A table ends before an op that `runs_alone`, and where a collective is awaited: before the first op that reads its
    result. Views of the result run with that op.
    """
    tables, others, table = list[list[Instruction]](), list[Instruction](), list[Instruction]()
    flying, arrived = InFlight[Instruction](), set[Instruction]()
    late = defaultdict[Instruction, list[Instruction]](list)
    for instruction in computation:
        awaited = [one for one in dict.fromkeys(flying.awaited(instruction)) if one not in arrived]
        if awaited:
            arrived.update(awaited)
            tables.append(table)
            table = [view for one in awaited for view in late.pop(one, ())]
        if instruction.op.is_collective:
            flying.start(instruction, instruction)
        if instruction.op.role in STRUCTURE or instruction.op.interface(PassesOn):
            continue
        if runs_alone(instruction):
            others.append(instruction)
            tables.append(table)
            table = []
        elif pending := [one for one in flying.carried(instruction) if one not in arrived]:
            late[pending[0]].append(instruction)
        else:
            table.append(instruction)
    ends = [view for views in late.values() for view in views]
    return [found for found in (*tables, table, ends) if found], others
