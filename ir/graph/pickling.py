"""Modules, computations and ops for `pickle` and `copy.deepcopy`.

Instructions refer to each other, so that pickling them one by one would recurse as deep as the program is. A
computation is written as a flat list of records instead, in which operands are numbers, and a module writes callees
before their callers. An op is written as its opcode and the Python module that registers it.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

from .instruction import Instruction
from .op import AnyOp, find_op, op_named

if TYPE_CHECKING:
    from .computation import Computation

_VALUES = (
    "sharding", "shardy", "metadata", "frontend_attributes", "backend_config", "other", "carried",
)  # fmt: skip
_REBUILT = ("parent", "_order", "_names", "_root")

Record = tuple[str, AnyOp, tuple[int, ...], Any, Any, Any, tuple[Any, ...], tuple[int, ...]]
State = tuple[dict[str, Any], list[Record], "int | None"]


def computation_state(computation: Computation) -> State:
    """Fields, one record per instruction, and the number of the root if it is set. The module is left out."""
    numbers = {instruction: number for number, instruction in enumerate(computation)}
    records: list[Record] = [
        (
            i.name, i.op, tuple(numbers[o] for o in i.operands), i.attributes, i.shape, i.location,
            tuple(getattr(i, field) for field in _VALUES), tuple(numbers[p] for p in i.control_predecessors),
        )
        for i in computation
    ]  # fmt: skip
    fields = {name: value for name, value in vars(computation).items() if name not in _REBUILT}
    return fields, records, numbers[computation.root] if numbers else None


def restore_computation(computation: Computation, state: State) -> None:
    """Makes an empty computation what the state says; its instructions are new."""
    fields, records, root = state
    vars(computation).update(fields, parent=None, _order={}, _names={}, _root=None)
    made = [Instruction(name, op, [], attributes, shape, at) for name, op, _, attributes, shape, at, _, _ in records]
    for instruction, (_, _, operands, _, _, _, values, predecessors) in zip(made, records, strict=True):
        instruction.operands = [made[number] for number in operands]
        for field, value in zip(_VALUES, values, strict=True):
            setattr(instruction, field, value)
        instruction.control_predecessors = tuple(made[number] for number in predecessors)
        computation.append(instruction)
    if root is not None:
        computation.root = made[root]


def instruction_of(computation: Computation, name: str) -> Instruction:
    """The instruction of this name; how a pickle refers to a single one. Raises UnpicklingError."""
    found = computation.find(name)
    if found is None:
        raise pickle.UnpicklingError(f"computation {computation.name} has no instruction {name}")
    return found


def op_of(module: str, opcode: str) -> AnyOp:
    """The op of this opcode; `module` is imported if that is what registers it. Raises UnpicklingError."""
    if find_op(opcode) is None and module in sys.modules:
        raise pickle.UnpicklingError(f"no op '{opcode}' is registered, though {module} is imported")
    if find_op(opcode) is None:
        importlib.import_module(module)
        return op_of(module, opcode)
    return op_named(opcode)
