"""More mistakes for `planted_faults`, down to those that tests on numbers hardly see: constants one unit in the last
place off, comparisons that differ where numbers are equal, other dimensions of the same size, a value in another's
place.

Where a mistake can be made at several places of an instruction, the choice depends on names only.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import numpy as np
from hloom.ir.errors import ShapeError
from hloom.ir.graph.attributes import PadDim, PaddingConfig, SliceDim, SliceDims
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.ops.comparison import ComparisonDirection
from hloom.ir.ops.shaping import IotaAttributes
from hloom.ir.sharding.replica_groups import ExplicitGroups, enumerate_groups
from hloom.ir.types.literal import Literal

T = TypeVar("T")
Fits = Callable[[Instruction], bool]
Plant = Callable[[Computation, Instruction], None]
_SMALL = 1e-6
_STRICT = {
    ComparisonDirection.LT: ComparisonDirection.LE, ComparisonDirection.LE: ComparisonDirection.LT,
    ComparisonDirection.GT: ComparisonDirection.GE, ComparisonDirection.GE: ComparisonDirection.GT,
}  # fmt: skip
_OTHER_OPS = {
    "add": "subtract", "subtract": "add", "multiply": "add", "divide": "multiply", "maximum": "minimum",
    "minimum": "maximum", "and": "or", "or": "and", "exponential": "tanh", "tanh": "exponential", "sine": "cosine",
    "cosine": "sine", "rsqrt": "sqrt", "sqrt": "rsqrt", "log": "exponential", "negate": "abs", "abs": "negate",
}  # fmt: skip


def attributes_of(instruction: Instruction) -> Any:
    return instruction.attributes


def change(instruction: Instruction, **changes: Any) -> None:
    instruction.attributes = dataclasses.replace(attributes_of(instruction), **changes)


def literal_of(instruction: Instruction) -> Any:
    return attributes_of(instruction).literal.array if instruction.opcode == "constant" else None


def chosen(instruction: Instruction, choices: list[T]) -> T:
    """Chooses by names only, so that it is the same choice in every run."""
    return random.Random(f"{instruction.opcode} {instruction.name}").choice(choices)


def replace_value(computation: Computation, i: Instruction, make: Callable[[Instruction], Instruction]) -> None:
    """Lets all users of a value see another one, which may be made from it."""
    users, was_root = list(i.users), computation.root is i
    made = make(i)
    for user in users:
        for index, operand in enumerate(list(user.operands)):
            if operand is i:
                computation.set_operand(user, index, made)
    if was_root:
        computation.root = made
    computation.sort()


def groups_of(instruction: Instruction) -> list[list[int]]:
    """Lists the devices of each group of a collective."""
    found = getattr(instruction.attributes, "replica_groups", None)
    module = instruction.parent.parent if instruction.parent else None
    return [] if found is None or module is None else list(map(list, enumerate_groups(found, module.num_partitions)))


def has_groups(instruction: Instruction) -> bool:
    """Whether a collective has several groups of several devices."""
    groups = groups_of(instruction)
    return len(groups) > 1 and len(groups[0]) > 1


def has_order(instruction: Instruction) -> bool:
    """Whether a collective counts the devices of its groups."""
    groups = groups_of(instruction)
    return instruction.opcode in ("all-gather", "all-to-all", "reduce-scatter") and bool(groups and len(groups[0]) > 1)


def is_one_of(*opcodes: str) -> Fits:
    return lambda instruction: instruction.opcode in opcodes


def set_groups(instruction: Instruction, groups: Iterable[Iterable[int]]) -> None:
    change(instruction, replica_groups=ExplicitGroups(tuple(map(tuple, groups))))


# -- collectives


def _pairs(instruction: Instruction) -> Any:
    return getattr(instruction.attributes, "source_target_pairs", ())


def _swapped_targets(_: Computation, instruction: Instruction) -> None:
    """Two targets change places."""
    pairs = [list(pair) for pair in _pairs(instruction)]
    first, second = chosen(instruction, list(itertools.combinations(range(len(pairs)), 2)))
    pairs[first][1], pairs[second][1] = pairs[second][1], pairs[first][1]
    change(instruction, source_target_pairs=tuple(map(tuple, pairs)))


# -- slices and padding


def _moved_slices(instruction: Instruction) -> list[SliceDims]:
    dims: SliceDims = attributes_of(instruction).slice if instruction.opcode == "slice" else ()
    found: list[SliceDims] = []
    for n, (d, size) in enumerate(zip(dims, instruction.operands[0].shape.dims if dims else (), strict=True)):
        for step in (-1, 1):
            if d.start + step >= 0 and d.limit + step <= size and d.limit > d.start:
                found.append((*dims[:n], SliceDim(d.start + step, d.limit + step, d.stride), *dims[n + 1 :]))
    return found


def _moved_slice(_: Computation, instruction: Instruction) -> None:
    change(instruction, slice=chosen(instruction, _moved_slices(instruction)))


def _moved_padding(_: Computation, instruction: Instruction) -> None:
    """There is one more element before and one fewer behind, in one dimension."""
    dims = list(attributes_of(instruction).padding.dims)
    n = chosen(instruction, list(range(len(dims))))
    dims[n] = PadDim(dims[n].low + 1, dims[n].high - 1, dims[n].interior)
    change(instruction, padding=PaddingConfig(tuple(dims)))


# -- constants


def _has_floats(instruction: Instruction) -> bool:
    array = literal_of(instruction)
    return array is not None and array.dtype.kind == "f" and array.size > 0 and bool(np.isfinite(array).all())


def _one_unit_off(_: Computation, instruction: Instruction) -> None:
    array = literal_of(instruction)
    change(instruction, literal=Literal(np.nextafter(array, array.dtype.type(np.inf))))


def _is_zero(instruction: Instruction) -> bool:
    return _has_floats(instruction) and not literal_of(instruction).any()


def _no_zero(_: Computation, instruction: Instruction) -> None:
    array = literal_of(instruction)
    change(instruction, literal=Literal(np.full_like(array, _SMALL)))


def _is_table(instruction: Instruction) -> bool:
    array = literal_of(instruction)
    return array is not None and array.dtype.kind in "iu" and array.size > 1


def _wrong_entry(_: Computation, instruction: Instruction) -> None:
    """One entry of a table is too large by one."""
    array = np.array(literal_of(instruction))
    place = chosen(instruction, list(range(array.size)))
    array.reshape(-1)[place : place + 1] += 1
    change(instruction, literal=Literal(array))


# -- operands


def _turned_mask(computation: Computation, instruction: Instruction) -> None:
    predicate, on_true, on_false = instruction.operands
    computation.set_operand(instruction, 1, on_false)
    computation.set_operand(instruction, 2, on_true)
    assert predicate is instruction.operands[0]


def _can_swap(instruction: Instruction) -> bool:
    ordered = instruction.opcode in ("subtract", "divide", "remainder", "power", "compare", "atan2")
    return ordered and instruction.operands[0] is not instruction.operands[1]


def _swapped_operands(computation: Computation, instruction: Instruction) -> None:
    first, second = instruction.operands
    computation.set_operand(instruction, 0, second)
    computation.set_operand(instruction, 1, first)


def _has_pieces(instruction: Instruction) -> bool:
    pieces = instruction.operands if instruction.opcode == "concatenate" else ()
    return len(pieces) > 1 and pieces[0] is not pieces[-1] and pieces[0].shape.compatible(pieces[-1].shape)


def _swapped_pieces(computation: Computation, instruction: Instruction) -> None:
    first, last = instruction.operands[0], instruction.operands[-1]
    computation.set_operand(instruction, 0, last)
    computation.set_operand(instruction, len(instruction.operands) - 1, first)


def _substitutes(instruction: Instruction) -> list[tuple[int, Instruction]]:
    """Values of the same shape that come before, for each operand."""
    if instruction.parent is None or not instruction.op.is_elementwise:
        return []
    before = list(itertools.takewhile(lambda i: i is not instruction, instruction.parent))
    return [
        (n, other)
        for n, operand in enumerate(instruction.operands)
        for other in before
        if other not in instruction.operands and other.shape.is_array and other.shape.compatible(operand.shape)
    ]


def _another_value(computation: Computation, instruction: Instruction) -> None:
    number, other = chosen(instruction, _substitutes(instruction))
    computation.set_operand(instruction, number, other)


def _another_op(computation: Computation, instruction: Instruction) -> None:
    made = computation.build(_OTHER_OPS[instruction.opcode], *instruction.operands)
    if computation.root is instruction:
        computation.root = made
    computation.replace_all_uses(instruction, made)
    computation.sort()


def _has_another_op(instruction: Instruction) -> bool:
    """Not in a reduction's computation: a reduction by differences has no one result."""
    shape, parent = instruction.shape, instruction.parent
    if shape.is_array and shape.rank == 0 and parent is not None and parent.root is instruction:
        return False
    if instruction.opcode not in _OTHER_OPS or not shape.is_array or not shape.element.is_number:
        return False
    return shape.element.is_float or len(instruction.operands) == 2


# -- dimensions and comparisons


def _other_dimensions(instruction: Instruction) -> list[dict[str, Any]]:
    """Changes of the dimensions of an op that keep the shape of its result."""
    attributes, rank = attributes_of(instruction), instruction.shape.rank if instruction.shape.is_array else 0
    found: list[dict[str, Any]] = []
    if isinstance(attributes, IotaAttributes):
        found = [{"iota_dimension": d} for d in range(rank) if d != attributes.iota_dimension]
    dims: Any = getattr(attributes, "dimensions", None)
    if isinstance(dims, tuple) and not instruction.op.is_collective:
        rank = max([rank, *(o.shape.rank for o in instruction.operands if o.shape.is_array)])
        found = [{"dimensions": made} for made in _near(cast(tuple[int, ...], dims), rank)]
    return [c for c in found if _keeps_shape(instruction, c)]


def _near(dims: tuple[int, ...], rank: int) -> Iterator[tuple[int, ...]]:
    """Two dimensions swapped, or one replaced."""
    for a, b in itertools.combinations(range(len(dims)), 2):
        made = list(dims)
        made[a], made[b] = made[b], made[a]
        yield tuple(made)
    for n in range(len(dims)):
        yield from ((*dims[:n], d, *dims[n + 1 :]) for d in range(rank) if d not in dims)


def _keeps_shape(instruction: Instruction, changes: dict[str, Any]) -> bool:
    attributes = dataclasses.replace(attributes_of(instruction), **changes)
    declared = instruction.shape.without_layout()
    try:
        found = instruction.op.infer_shape([o.shape for o in instruction.operands], attributes, declared)
    except (ShapeError, ValueError, IndexError):
        return False
    return found.without_layout() == declared


def _another_dimension(_: Computation, instruction: Instruction) -> None:
    change(instruction, **chosen(instruction, _other_dimensions(instruction)))


def _is_strict(instruction: Instruction) -> bool:
    return instruction.opcode == "compare" and attributes_of(instruction).direction in _STRICT


def _less_strict(_: Computation, instruction: Instruction) -> None:
    change(instruction, direction=_STRICT[attributes_of(instruction).direction])


EDITS: list[tuple[str, Fits, Plant]] = [
    ("swapped targets", lambda i: len(_pairs(i)) > 1, _swapped_targets),
    ("moved slice", lambda i: bool(_moved_slices(i)), _moved_slice),
    ("moved padding", lambda i: i.opcode == "pad" and i.shape.rank > 0, _moved_padding),
    ("one unit in the last place", lambda i: _has_floats(i) and bool(literal_of(i).any()), _one_unit_off),
    ("no zero", _is_zero, _no_zero),
    ("wrong table entry", _is_table, _wrong_entry),
    ("turned mask", lambda i: i.opcode == "select", _turned_mask),
    ("swapped operands", _can_swap, _swapped_operands),
    ("swapped pieces", _has_pieces, _swapped_pieces),
    ("another value", lambda i: bool(_substitutes(i)), _another_value),
    ("another op", _has_another_op, _another_op),
    ("another dimension", lambda i: bool(_other_dimensions(i)), _another_dimension),
    ("comparison of equals", _is_strict, _less_strict),
]
