"""Mistakes for `planted_faults` that lie in decisions: which branch, how many trips, which index, which of equal keys.

Where a mistake can be made at several places of an instruction, the choice depends on names only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hloom.ir.graph.attributes import Pairs
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Role
from hloom.ir.ops.comparison import ComparisonDirection as Direction
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.ir.types.literal import Literal
from support.planted_edits import (
    Fits,
    Plant,
    attributes_of,
    change,
    chosen,
    groups_of,
    has_groups,
    has_order,
    is_one_of,
    literal_of,
    replace_value,
    set_groups,
)

_OPPOSITE = {
    Direction.LT: Direction.GE, Direction.GE: Direction.LT, Direction.GT: Direction.LE, Direction.LE: Direction.GT,
    Direction.EQ: Direction.NE, Direction.NE: Direction.EQ,
}  # fmt: skip
_REVERSED = {
    Direction.LT: Direction.GT, Direction.GT: Direction.LT, Direction.LE: Direction.GE, Direction.GE: Direction.LE,
}  # fmt: skip
_NARROWER = {"f64": "f32", "f32": "bf16", "s64": "s16", "s32": "s8", "u32": "u8", "s16": "s8", "c128": "c64"}


def constant_like(computation: Computation, i: Instruction, array: Any) -> Instruction:
    made = computation.constant(0, i.shape.element.name)
    attributes = attributes_of(made)
    made.attributes = type(attributes)(literal=Literal(np.asarray(array).astype(literal_of(made).dtype)))
    return made


# -- constants, counts, indices


def _is_integer(i: Instruction) -> bool:
    array = literal_of(i)
    return array is not None and array.dtype.kind in "iu" and array.size > 0


def _one_less(_: Computation, i: Instruction) -> None:
    array = literal_of(i)
    change(i, literal=Literal(np.asarray(array - array.dtype.type(1), array.dtype)))


def _ends_loop(i: Instruction) -> bool:
    module = i.parent.parent if i.parent else None
    loops = (user for c in module or () for user in c if user.op.role is Role.LOOP)
    return _is_integer(i) and any(loop.called()[0] is i.parent for loop in loops)


def _another_trip(_: Computation, i: Instruction) -> None:
    array = literal_of(i)
    one = array.dtype.type(1)
    change(i, literal=Literal(np.asarray(chosen(i, [array - one, array + one]), array.dtype)))


def _indices(i: Instruction) -> range:
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(i.opcode)
    return range(first, len(i.operands)) if first is not None else range(0)


def _moved_start(computation: Computation, i: Instruction) -> None:
    """A start is one too large or too small."""
    number = chosen(i, list(_indices(i)))
    index: Instruction = i.operands[number]
    one = computation.constant(1, index.shape.element.name)
    computation.set_operand(i, number, computation.build(chosen(i, ["add", "subtract"]), index, one))
    computation.sort()


def _lost_clamp(computation: Computation, i: Instruction) -> None:
    replace_value(computation, i, lambda x: x.operands[1])


def _has_narrow_clamp(i: Instruction) -> bool:
    return i.opcode == "clamp" and i.shape.element.is_integer and literal_of(i.operands[2]) is not None


def _narrow_clamp(computation: Computation, i: Instruction) -> None:
    bound = i.operands[2]
    array = literal_of(bound)
    one = array.dtype.type(1)
    made = constant_like(computation, bound, chosen(i, [array - one, array + one]))
    if made.shape.compatible(bound.shape):
        computation.set_operand(i, 2, made)
    computation.sort()


# -- predicates and choices


def _opposite(_: Computation, i: Instruction) -> None:
    change(i, direction=_OPPOSITE[attributes_of(i).direction])


def _reversed(_: Computation, i: Instruction) -> None:
    change(i, direction=_REVERSED[attributes_of(i).direction])


def _first_choice(computation: Computation, i: Instruction) -> None:
    computation.replace_all_uses(i, i.operands[1])


def _second_choice(computation: Computation, i: Instruction) -> None:
    computation.replace_all_uses(i, i.operands[2])


def _is_logic(i: Instruction) -> bool:
    return i.opcode in ("and", "or") and i.shape.is_array and i.shape.element.name == "pred"


def _lost_term(computation: Computation, i: Instruction) -> None:
    computation.replace_all_uses(i, i.operands[chosen(i, [0, 1])])


def _can_turn_branches(i: Instruction) -> bool:
    called = i.called() if i.opcode == "conditional" else ()
    return len(called) == 2 and called[0] is not called[1]


def _turned_branches(_: Computation, i: Instruction) -> None:
    a = attributes_of(i)
    if a.branch_computations:
        change(i, branch_computations=tuple(reversed(a.branch_computations)))
    else:
        change(i, true_computation=a.false_computation, false_computation=a.true_computation)


# -- order


def _other_end(_: Computation, i: Instruction) -> None:
    change(i, largest=not attributes_of(i).largest)


def _compares_in_sort(i: Instruction) -> bool:
    module = i.parent.parent if i.parent else None
    if module is None or i.opcode != "compare" or attributes_of(i).direction not in _OPPOSITE:
        return False
    return any(user.opcode == "sort" and i.parent in user.called() for c in module for user in c)


def _unstable(_: Computation, i: Instruction) -> None:
    """Equal keys change places."""
    direction = attributes_of(i).direction
    loose = {Direction.LT: Direction.LE, Direction.GT: Direction.GE, Direction.LE: Direction.LT,
             Direction.GE: Direction.GT}  # fmt: skip
    change(i, direction=loose.get(direction, direction))


def _turned_keys(_: Computation, i: Instruction) -> None:
    change(i, direction=_REVERSED.get(attributes_of(i).direction, attributes_of(i).direction))


# -- initial values, padding, types


def _has_start(i: Instruction) -> bool:
    number = {"reduce": 1, "reduce-window": 1, "pad": 1, "select-and-scatter": 2}.get(i.opcode, -1)
    return number >= 0 and len(i.operands) == number + 1 and i.operands[number].opcode == "constant"


def _other_start(computation: Computation, i: Instruction) -> None:
    """The initial value, or that of padding, is another one."""
    number = len(i.operands) - 1
    start = i.operands[number]
    array = literal_of(start)
    finite = array.dtype.kind not in "f" or bool(np.isfinite(array).all())
    with np.errstate(all="ignore"):
        other = np.logical_not(array) if array.dtype.kind == "b" else array + 1 if finite else np.zeros_like(array)
    computation.set_operand(i, number, constant_like(computation, start, other))
    computation.sort()


def _can_narrow(i: Instruction) -> bool:
    shape = i.shape
    computed = i.opcode in ("all-gather", "dot", "add", "multiply", "parameter", "convert", "gather", "dynamic-slice")
    return computed and shape.is_array and shape.element.name in _NARROWER and len(i.users) > 0


def _narrowed(computation: Computation, i: Instruction) -> None:
    """A value goes through a narrower type."""

    def make(x: Instruction) -> Instruction:
        narrow = x.shape.with_element(ELEMENT_TYPES[_NARROWER[x.shape.element.name]]).without_layout()
        there = computation.build("convert", x, shape=narrow)
        return computation.build("convert", there, shape=x.shape.without_layout())

    replace_value(computation, i, make)


# -- groups


def _next_devices(_: Computation, i: Instruction) -> None:
    """Each device takes the place of the one before it."""
    groups = groups_of(i)
    count = sum(map(len, groups))
    set_groups(i, [[(d + 1) % count for d in g] for g in groups])


def _transposed_groups(_: Computation, i: Instruction) -> None:
    """The first members of all groups make a group, and so on, as on the other axis of a mesh."""
    groups = groups_of(i)
    set_groups(i, zip(*groups, strict=True))


def _is_square(i: Instruction) -> bool:
    groups = groups_of(i)
    return has_groups(i) and len(groups) == len(groups[0])


def _swapped_members(_: Computation, i: Instruction) -> None:
    """Two members of the first group change places."""
    groups = groups_of(i)
    groups[0][0], groups[0][1] = groups[0][1], groups[0][0]
    set_groups(i, groups)


def _other_way(_: Computation, i: Instruction) -> None:
    """Data goes from targets to sources."""
    pairs: Pairs = attributes_of(i).source_target_pairs
    change(i, source_target_pairs=tuple((t, s) for s, t in pairs))


DECISIONS: list[tuple[str, Fits, Plant]] = [
    ("one less", _is_integer, _one_less),
    ("another trip", _ends_loop, _another_trip),
    ("moved start", lambda i: len(_indices(i)) > 0, _moved_start),
    ("lost clamp", lambda i: i.opcode == "clamp", _lost_clamp),
    ("bound of a clamp", _has_narrow_clamp, _narrow_clamp),
    ("opposite predicate", lambda i: i.opcode == "compare", _opposite),
    ("reversed comparison", lambda i: i.opcode == "compare" and attributes_of(i).direction in _REVERSED, _reversed),
    ("always the first", is_one_of("select"), _first_choice),
    ("always the second", is_one_of("select"), _second_choice),
    ("lost term of a mask", _is_logic, _lost_term),
    ("turned branches", _can_turn_branches, _turned_branches),
    ("other end of an order", is_one_of("topk"), _other_end),
    ("equal keys in another order", _compares_in_sort, _unstable),
    ("turned order of keys", _compares_in_sort, _turned_keys),
    ("other initial value", _has_start, _other_start),
    ("narrower type", _can_narrow, _narrowed),
    ("next devices", has_groups, _next_devices),
    ("groups of the other axis", _is_square, _transposed_groups),
    ("swapped members", has_order, _swapped_members),
    ("other way", is_one_of("collective-permute"), _other_way),
]
