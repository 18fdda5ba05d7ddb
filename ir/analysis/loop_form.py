"""The loops of an op: sizes, the places at which it reads its operands, the loops that it folds.

They follow from the sources of ops that move elements, and from the sharding rules of others, which name the index of
each dimension. Dimensions of size 1 have no loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..factors.sharding_rule import FactorKind, ValueFactors
from ..graph.instruction import Instruction
from ..graph.interfaces import movement
from ..graph.op import AnyOp, OpCall, Role
from ..graph.source import Along, RowMajor, Source, Windows, lie_side_by_side
from ..types.shape import Shape

Places = tuple[int, ...]
"""The loop that counts each dimension of a value, dimensions of size 1 left out."""


@dataclass(frozen=True, slots=True)
class LoopForm:
    """An op as loops of these `sizes` that read operand n at the places `reads[n]`; None: at others, as a slice does.
    The result has the loops `kept`; the op combines the elements along the others. The operands of a `joint` op, all of
    one size, lie side by side in its result; its loops are those of one operand. An op of `windows` reads operand 0 at
    computed places, so it has to be in memory.
    """

    sizes: tuple[int, ...]
    reads: tuple[Places | None, ...]
    kept: Places
    joint: bool = False
    windows: bool = False

    @property
    def folds(self) -> bool:
        return len(self.kept) < len(self.sizes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an op is not fused, or not with the loops of another: a clause in which {} stands for the other."""

    reason: str
    other: Instruction | None = None

    def __str__(self) -> str:
        return self.reason.format(self.other.name if self.other is not None else "")


def form_of(instruction: Instruction) -> LoopForm | Refusal:
    """Returns the loops of an instruction, or why loops over its elements do not compute it."""
    op = instruction.op
    if not (op.is_fusible or op.role is Role.CONSTANT):
        return Refusal(f"no loops over elements compute a {op.opcode}")
    if instruction.control_predecessors:
        return Refusal("it has to wait for {}", instruction.control_predecessors[0])
    return (_found if instruction.called() else _form)(op, instruction.call)


@lru_cache(maxsize=4096)
def sizes_of(shape: Shape) -> tuple[int, ...]:
    """Returns the sizes of the dimensions that have loops."""
    return tuple(size for size in shape.dims if size != 1)


@lru_cache(maxsize=65536)
def _form(op: AnyOp, call: OpCall[Any]) -> LoopForm | Refusal:
    """Returns the known loops of a call without computations, with which their programs would be kept."""
    return _found(op, call)


def _found(op: AnyOp, call: OpCall[Any]) -> LoopForm | Refusal:
    shapes = (*call.operands, call.shape)
    if any(not s.is_array or s.is_dynamic or 0 in s.dims for s in shapes):
        return Refusal("its values are not arrays of fixed sizes that have elements")
    windows = movement(op).windows(call)
    if windows is not None:
        return _windowed(windows, call)
    sources = movement(op).sources(call)
    if sources is not None:
        return _moving(sources, call)
    rule = op.sharding_rule(call)
    if any(f.kind not in (FactorKind.PASS, FactorKind.REDUCTION) for f in rule.factors):
        return Refusal("its elements depend on more than one element of a dimension")
    values = [_loops(v, s) for v, s in zip((*rule.operands, *rule.results), shapes, strict=True)]
    largest = max(reversed(values), key=lambda v: -1 if v is None else len(v))  # the result's order if it has all
    if largest is None or any(v is None or not set(v) <= set(largest) for v in values):
        return Refusal("no value has all of its loops")
    place = {factor: n for n, factor in enumerate(largest)}
    *reads, kept = [tuple(place[f] for f in v or ()) for v in values]
    if kept != tuple(sorted(kept)) or (len(kept) < len(largest) and (rule.monoid is None or len(reads) != 2)):
        return Refusal("it reduces several arrays, by no known monoid, or to another order of dimensions")
    return LoopForm(tuple(rule.factors[f].size for f in largest), tuple(reads), kept)


def _moving(sources: tuple[Source, ...], call: OpCall[Any]) -> LoopForm | Refusal:
    sizes = sizes_of(call.shape)
    one = sizes_of(call.operands[0])
    if lie_side_by_side(sources, call.operands, call.shape) and all(sizes_of(o) == one for o in call.operands):
        return LoopForm(one, (tuple(range(len(one))),) * len(sources), tuple(range(len(one))), True)
    if any(isinstance(s, RowMajor) and sizes_of(o) != sizes for s, o in zip(sources, call.operands, strict=True)):
        return Refusal("it splits or joins dimensions, so its loops are not those of its operand")
    reads = tuple(_places(s, o, call.shape) for s, o in zip(sources, call.operands, strict=True))
    return LoopForm(sizes, reads, tuple(range(len(sizes))))


def _windowed(windows: Windows, call: OpCall[Any]) -> LoopForm | Refusal:
    sizes = sizes_of(call.shape)
    if not sizes:
        return Refusal("it reads a single element at a computed place")
    reads: list[Places | None] = [None] * len(call.operands)
    for start in windows.starts:
        reads[start.operand] = _places(start.index, call.operands[start.operand], call.shape)
    return LoopForm(sizes, tuple(reads), tuple(range(len(sizes))), windows=True)


def _places(source: Source, operand: Shape, result: Shape) -> Places | None:
    """Returns the loops of the result that count the dimensions of an operand; None if they count other elements."""
    if isinstance(source, RowMajor):
        return tuple(range(len(sizes_of(result))))
    numbers = {dim: n for n, dim in enumerate(d for d, size in enumerate(result.dims) if size != 1)}
    along = [a for a, size in zip(source, operand.dims, strict=True) if size != 1]
    sizes = [size for size in operand.dims if size != 1]
    if any(a != Along(a.dim) or result.dims[a.dim] != size for a, size in zip(along, sizes, strict=True)):
        return None
    return tuple(numbers[a.dim] for a in along)


def _loops(factors: ValueFactors, shape: Shape) -> tuple[int, ...] | None:
    """Returns the one factor of each dimension of a value; None if a dimension is made of several, or twice of one."""
    found = [dim for dim, size in zip(factors, shape.dims, strict=True) if size != 1]
    if any(len(dim) != 1 for dim in found):
        return None
    loops = tuple(dim[0] for dim in found)
    return loops if len(set(loops)) == len(loops) else None
