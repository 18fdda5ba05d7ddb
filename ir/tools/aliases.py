"""Reads lists of results that lie in the memory of operands: `{ {0}: (2, {}, may-alias) }`."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..types.shape import Shape

_ENTRY = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}")
_DONOR = re.compile(r"\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}")


class Alias(NamedTuple):
    """A part of the result, by its index such as `0, 1`, and the operand and the part of it whose memory it takes."""

    result: str
    operand: int
    part: str


def aliases(text: str) -> list[Alias]:
    """Returns the entries of `input_output_alias` or `output_to_operand_aliasing`."""
    return [Alias(result, int(number), part) for result, number, part in _ENTRY.findall(text)]


def donors(text: str) -> list[tuple[int, str]]:
    """Returns the parameters of `buffer_donor`, each with the index of the part that is given away."""
    return [(int(number), part) for number, part in _DONOR.findall(text)]


def leaf_number(shape: Shape, index: str) -> int | None:
    """Returns the number of the leaf at an index such as `0, 1`; None if there is none."""
    number = 0
    for step in (int(n) for n in index.split(",") if n.strip()):
        if step >= len(shape.elements):
            return None
        number += shape.leaf_range(step)[0]
        shape = shape.elements[step]
    return None if shape.is_tuple else number
