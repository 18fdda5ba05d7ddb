"""The bytes of memory that instructions of a per-device program read and write.

Views, structure, collectives and memory without content touch nothing (the time of a collective is that of its links).
An op that moves elements reads at most as many bytes of each operand as it writes, and one that updates an operand in
place writes at most as many as its other operands have. A fusion reads its parameters and writes its root by the same
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from ..ir.graph.algebra import Algebra
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import Movement, PassesOn, memory
from ..ir.graph.op import AnyOp, Role
from ..ir.ops.calls.custom_call import is_allocation
from .uses import algebra, overwritten

_STRUCTURE = frozenset({Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT})


def touched(
    instruction: Instruction, is_stored: Callable[[Instruction], bool] = lambda _: True,
    read_before: Mapping[Instruction, int] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Returns the bytes that one execution of an instruction reads and writes, without those of its callees.

    `is_stored` decides whether a value lies in memory; by default all do. Bytes of operands that were `read_before`
    cost nothing.
    """
    if touches_nothing(instruction.op) or (not instruction.operands and is_allocation(instruction)):
        return 0
    if instruction.op.role is Role.FUSION:
        return _fusion(instruction)
    read, written = _traffic(instruction)
    left = reads(instruction, is_stored, read_before)
    read_here = sum([min(read[n], some) for n, some in left.items()])
    return read_here + (written if is_stored(instruction) else 0)


def reads(
    instruction: Instruction, is_stored: Callable[[Instruction], bool], read_before: Mapping[Instruction, int]
) -> dict[int, int]:
    """Returns the numbers of the operands that an instruction reads in memory, with the bytes of each that were not
    read before. An op on elements reads each once.
    """
    operands, once = instruction.operands, instruction.op.is_elementwise
    left = {n: o.shape.byte_size - read_before.get(o, 0) for n, o in enumerate(operands)
            if is_stored(o) and not (once and o in operands[:n])}  # fmt: skip
    return {n: some for n, some in left.items() if some} if read_before else left


@cache
def touches_nothing(op: AnyOp) -> bool:
    """Whether no use of an op reads or writes memory: it only forwards values, or its callees or engines move them."""
    is_moved = op.role in _STRUCTURE or memory(op).is_view or op.is_collective or op.is_control
    return op.role is not Role.FUSION and (is_moved or op.interface(PassesOn) is not None)


def traffic(operands: Sequence[int], results: int, moves: bool, kept: Container[int]) -> tuple[list[int], int]:
    """Returns how much an op reads of each operand, and how much it writes, given the sizes of its operands and results
    together: an op that `moves` elements, or one that updates the operands `kept` in place.
    """
    read = [0 if n in kept else size for n, size in enumerate(operands)]
    written = min(results, sum(read)) if any(n in kept for n in range(len(operands))) else results
    return [min(size, results) for size in read] if moves else read, written


def _traffic(instruction: Instruction) -> tuple[list[int], int]:
    sizes, result = [o.shape.byte_size for o in instruction.operands], instruction.shape.byte_size
    kept = overwritten(instruction)
    if not sizes or (not kept and len(sizes) == 1 and sizes[0] <= result):
        return sizes, result
    return traffic(sizes, result, algebra(instruction) is Algebra.MOVE, kept)


def _fusion(fusion: Instruction) -> int:
    return sum(read_of_operands(fusion)) + written_of(fusion)


def read_of_operands(instruction: Instruction) -> list[int]:
    """Returns the bytes that an op which computes reads of each operand."""
    if instruction.op.role is not Role.FUSION:
        return _traffic(instruction)[0]
    (computation,) = instruction.called()
    return [min(p.shape.byte_size, sum(_traffic(user)[0][n] for user, numbers in _users(p) for n in numbers))
            for p in computation.parameters]  # fmt: skip


def written_of(instruction: Instruction) -> int:
    """Returns the bytes that an op which computes writes."""
    if instruction.op.role is not Role.FUSION:
        return _traffic(instruction)[1]
    (computation,) = instruction.called()
    root = computation.root
    results = root.operands if root.op.role is Role.TUPLE else [root]
    return sum(_traffic(_source(result))[1] for result in results)


def _users(value: Instruction) -> Iterator[tuple[Instruction, list[int]]]:
    """Yields the users of a value, looking through views, and the operand numbers."""
    for user in dict.fromkeys(value.users):
        if _is_view(user):
            yield from _users(user)
        else:
            yield user, [n for n, operand in enumerate(user.operands) if operand is value]


def _source(value: Instruction) -> Instruction:
    while _is_view(value):
        value = value.operands[0]
    return value


def _is_view(instruction: Instruction) -> bool:
    """Whether an instruction of a fusion costs nothing: a view, or a copy."""
    op = instruction.op
    is_copy = op.is_elementwise and op.interface(Movement) is not None and op.algebra is Algebra.MOVE
    return (memory(op).is_view and bool(instruction.operands)) or (is_copy and len(instruction.operands) == 1)
