"""Reads lines that differ from an earlier line only in names, operands of equal shapes and metadata.

Most lines of a program repeat others: its layers are alike. Such a line has the op, attributes, shape and annotations
of the earlier one, so it is copied and not read again. Its meaning depends on its texts and on operand shapes alone.
Parameters may also differ in their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ir.diagnostics import Location, SourceFile
from ...ir.graph.attributes import Attributes, inline_field
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import OPS, AnyOp, Role, find_op
from ...ir.types.element_type import ELEMENT_TYPES
from .attribute_reader import SIMPLE_BRACES, metadata_of
from .scan import IDENT, KEYWORDS

# Possessive quantifiers (`*+`) throughout: a line of another form fails in linear time.
_LINE = re.compile(
    rf"\s*+(ROOT\s++)?+(%?+{IDENT}+)\s++=\s*+"
    r"([a-z][a-z0-9]*+\[[0-9,]*+\](?:\{[0-9,]*+\})?+|\([^()/=]*+\))\s++"
    r"([a-z][a-z0-9\-]*+)\(([^(){}\"/\[]*+)\)"
    rf"((?:[^\n,]++|,(?! metadata=))*+)(?:, metadata=({SIMPLE_BRACES.pattern}))?+([^\n]*+)"
    r"\n\s*+(?=[%A-Za-z_}])"
)
"""ROOT, name, shape, opcode, operands, attributes, metadata and further attributes, up to the next token."""

_NOT_NAMES = KEYWORDS | frozenset(ELEMENT_TYPES)


@dataclass
class Body:
    """A computation being read, and the names of its instructions that could not be read."""

    computation: Computation
    poisoned: set[str] = field(default_factory=set[str])
    root_place: int | None = None
    implicit_parameters: bool = False  # unknown operands become parameters (modules of a single instruction)


class DistinctLine(NamedTuple):
    """A line that is unlike those before it. `key` holds all that determines its meaning, up to name and metadata;
    `next` is the place of the token after it.
    """

    key: tuple[str | int, ...]
    operands: list[Instruction]
    next: int


class RepeatedLines:
    """The first instruction of each kind of line of one text. `attributes_of` makes the attributes of an op whose only
    attribute stands in parentheses.
    """

    def __init__(self, source: SourceFile, attributes_of: Callable[[AnyOp, str, int], Attributes]) -> None:
        self._source = source
        self._attributes_of = attributes_of
        # An instruction keeps the shapes of its operands alive, so that the numbers in its key stay theirs.
        self._known: dict[tuple[str | int, ...], Instruction] = {}
        self.missed: DistinctLine | None = None

    def read(self, place: int, body: Body) -> int:
        """Appends the instructions of the lines from `place` on whose kind is known. Returns the place of the first
        other one; `missed` is that line if it has the common form.
        """
        text, computation, find = self._source.text, body.computation, body.computation.find
        self.missed = None
        while (match := _LINE.match(text, place)) is not None:
            root, word, shape, opcode, inside, attributes, metadata, rest = match.groups()
            name = word.lstrip("%")
            op = OPS.get(opcode) or find_op(opcode)
            if op is None or name in _NOT_NAMES or find(name) is not None or name in body.poisoned:
                return place
            operands: list[Instruction] = []
            inline = inline_field(op.attributes)
            for operand in inside.split(", ") if inside and inline is None else ():
                found = find(operand.lstrip("%"))
                if found is None:
                    return place
                operands.append(found)
            if root and body.root_place is not None:
                return place
            is_numbered = op.role is Role.PARAMETER and inside.isdigit() and len(inside) < 9
            depends = [id(o.shape) for o in operands] if inline is None else [] if is_numbered else [inside]
            key = (opcode, shape, attributes, rest, *depends)
            known = self._known.get(key)
            if known is None:
                self.missed = DistinctLine(key, operands, match.end())
                return place
            given = self._attributes_of(op, inside, match.start(6)) if is_numbered else known.attributes
            copy = known.copied(name, operands, given)
            copy.location = Location(self._source, match.start(2), match.start(6))
            copy.metadata = None if metadata is None else metadata_of(metadata)
            computation.append(copy)
            if root:
                body.root_place, computation.root = match.start(2), copy
            place = match.end()
        return place

    def keep(self, line: DistinctLine, instruction: Instruction) -> None:
        """Makes the instruction that was read from this line known, if the line alone determines it."""
        if instruction.operands == line.operands and not instruction.control_predecessors:
            self._known[line.key] = instruction
