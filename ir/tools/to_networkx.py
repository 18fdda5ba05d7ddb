"""Conversion of modules to networkx graphs, for existing analyses: paths, dominators, communities, drawing.

Nodes are `(computation name, instruction name)`. Edges lead from producers to consumers.
"""

# networkx has no types.
# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

from ..checked_call import checked
from ..graph.instruction import Instruction
from ..graph.module import Module

Node = tuple[str, str]


@checked
def to_networkx(module: Module) -> Any:
    """Returns the module as a `networkx.DiGraph`.

    A node has `opcode`, `shape` (text), `computation` and `instruction` (the object itself). An edge has `kind`, one of

    - `operand`: `operands` holds the numbers of the operands it stands for (two for `add(x, x)`);
    - `call`: from the root of a called computation to the caller;
    - `control`: a control dependency.
    """
    import networkx

    graph: Any = networkx.DiGraph(name=module.name)
    for instruction in (i for computation in module for i in computation):
        graph.add_node(
            _node(instruction),
            opcode=instruction.opcode,
            shape=str(instruction.shape.without_layout()),
            computation=_node(instruction)[0],
            instruction=instruction,
        )
    for instruction in (i for computation in module for i in computation):
        target = _node(instruction)
        for predecessor in instruction.control_predecessors:
            graph.add_edge(_node(predecessor), target, kind="control")
        for called in instruction.called():
            graph.add_edge(_node(called.root), target, kind="call")
        # Data flow comes last, to determine the kind of an edge that has several reasons.
        numbers: dict[Instruction, tuple[int, ...]] = {}
        for number, operand in enumerate(instruction.operands):
            numbers[operand] = (*numbers.get(operand, ()), number)
        for operand, places in numbers.items():
            graph.add_edge(_node(operand), target, kind="operand", operands=places)
    return graph


def _node(instruction: Instruction) -> Node:
    assert instruction.parent is not None
    return instruction.parent.name, instruction.name
