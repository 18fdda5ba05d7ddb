"""Labels the tensors that collectives move, after the parameters they belong to: by layer, or by a user's patterns.

A gather belongs to the parameter that it reads. A reduction belongs to the parameter with as many elements that is an
operand of the same update. The layer of a parameter is the first number in its name: `w['q3']`, `layers[3].query`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.tools.names import fits, name_pattern, names_of

_FURTHEST = 12  # instructions looked at for one name
_NUMBER = re.compile(r"\d+")
_COPY = re.compile(r"\.\d+$")  # the suffix that makes a name unique


def names_of_gather(gather: Instruction) -> tuple[str, ...]:
    """Returns the names of the parameter that a gather reads; none if it reads several or none."""
    stack, found = list(gather.operands), set[Instruction]()
    for _ in range(_FURTHEST):
        if not stack:
            break
        value = stack.pop()
        if _is_given(value):
            found.add(value)
        else:
            stack += value.operands
    largest = sorted(found, key=lambda v: -v.shape.byte_size)
    return _names(largest[0]) if largest else ()


def names_of_reduction(reduction: Instruction) -> tuple[str, ...]:
    """Returns the names of the parameter whose gradient a reduction makes."""
    size, seen = reduction.shape.num_elements, {reduction}
    stack = [reduction]
    for _ in range(_FURTHEST):
        if not stack:
            break
        for user in stack.pop(0).users:
            for operand in user.operands:
                if _is_given(operand) and operand.shape.is_array and operand.shape.num_elements == size:
                    return _names(operand)
            if user not in seen and user.op.role is not Role.TUPLE:
                seen.add(user)
                stack.append(user)
    return ()


def _is_given(value: Instruction) -> bool:
    """Whether a value is a parameter, or a part of one."""
    if value.op.role is Role.ELEMENT:
        return _is_given(value.operands[0])
    return value.op.role is Role.PARAMETER


def _names(value: Instruction) -> tuple[str, ...]:
    return names_of(value)


def layer(names: Sequence[str]) -> str:
    """Returns the layer of a parameter; an empty text if its name has no number."""
    numbers = (_NUMBER.search(_COPY.sub("", name)) for name in reversed(names))
    return next((number[0] for number in numbers if number), "")


def in_patterns(many: Sequence[tuple[str, ...]], patterns: Sequence[str]) -> Iterator[object]:
    """Yields the first pattern that matches each tensor; a label of its own if none does."""
    compiled = [(text, name_pattern(text)) for text in patterns]
    for number, names in enumerate(many):
        yield next((text for text, pattern in compiled if fits(pattern, names)), number)


def labels_of(gathers: Sequence[Instruction], reductions: Sequence[Instruction]) -> tuple[list[str], list[str]]:
    """Returns the layers of gathers and of reductions."""
    return [layer(names_of_gather(g)) for g in gathers], [layer(names_of_reduction(r)) for r in reductions]
