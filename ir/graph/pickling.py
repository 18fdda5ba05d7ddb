"""Conversion of instructions to flat records, for `pickle` and `copy.deepcopy`.

Instructions refer to each other, so pickling them one by one would recurse as deep as the program. A computation is
written as a list of records instead, in which operands are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .instruction import Instruction
from .op import AnyOp

_VALUES = (
    "sharding", "shardy", "metadata", "frontend_attributes", "backend_config", "other", "proto_extras",
)  # fmt: skip

Record = tuple[str, AnyOp, tuple[int, ...], Any, Any, Any, tuple[Any, ...], tuple[int, ...]]


def records_of(instructions: Iterable[Instruction]) -> list[Record]:
    """Returns one record per instruction of a computation, given in order."""
    numbers = {instruction: number for number, instruction in enumerate(instructions)}
    return [
        (
            i.name, i.op, tuple(numbers[o] for o in i.operands), i.attributes, i.shape, i.location,
            tuple(getattr(i, field) for field in _VALUES), tuple(numbers[p] for p in i.control_predecessors),
        )
        for i in numbers
    ]  # fmt: skip


def instructions_of(records: Iterable[Record]) -> list[Instruction]:
    """Creates the instructions of these records. They are in no computation yet."""
    records = list(records)
    made = [Instruction(name, op, [], attributes, shape, at) for name, op, _, attributes, shape, at, _, _ in records]
    for instruction, (_, _, operands, _, _, _, values, predecessors) in zip(made, records, strict=True):
        instruction.operands = [made[number] for number in operands]
        for field, value in zip(_VALUES, values, strict=True):
            setattr(instruction, field, value)
        instruction.control_predecessors = tuple(made[number] for number in predecessors)
    return made
