"""Reads lines that differ from an earlier line only in names, operands of equal shapes and metadata.

Most lines of a program repeat others: its layers are alike. Such a line has the op, attributes, shape and annotations
of the earlier one, so it is copied and not read again. Its meaning depends on its texts and on operand shapes alone.
Parameters may also differ in their numbers, and lines that apply computations to elements in which of equal ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ir.diagnostics import Location, SourceFile
from ...ir.graph.attributes import Attributes, ParameterAttributes, inline_field
from ...ir.graph.clone import map_called
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction, Metadata
from ...ir.graph.interfaces import Applies
from ...ir.graph.op import Role, find_op
from ...ir.keywords import KEYWORDS
from ...ir.types.element_type import ELEMENT_TYPES
from .attribute_reader import SIMPLE_BRACES, metadata_of
from .scan import IDENT

# Possessive quantifiers (`*+`) throughout: a line of another form fails in linear time.
_LINE = re.compile(
    rf"\s*+(ROOT\s++)?+%?+({IDENT}+)\s++=\s*+"
    r"((?:[a-z][a-z0-9]*+\[[0-9,]*+\](?:\{[0-9,]*+\})?+|\([^()/=]*+\))\s++"
    r"[a-z][a-z0-9\-]*+)\(([^(){}\"/\[]*+)\)"
    r"([^\n]*+)\n\s*+(?=[%A-Za-z_}])"
)
"""ROOT, name, shape with opcode, operands and the rest of the line, up to the next token."""

_REST = re.compile(rf"((?:[^,]++|,(?! metadata=))*+)(?:, metadata=({SIMPLE_BRACES.pattern}))?+(.*+)")
"""Attributes, metadata and further attributes of a line."""

_APPLIED = re.compile(rf"(?<=, to_apply=)%?+({IDENT}+)(?![^,])")
_SMALL = 8  # instructions of a computation that ops apply to elements

_NOT_NAMES = KEYWORDS | frozenset(ELEMENT_TYPES)


@dataclass
class Body:
    """A computation being read, the names of its instructions that could not be read, and of that which is `read` now.
    """

    computation: Computation
    poisoned: set[str] = field(default_factory=set[str])
    read: str = ""
    root_place: int | None = None
    implicit_parameters: bool = False  # unknown operands become parameters (modules of a single instruction)


class DistinctLine(NamedTuple):
    """A line that is unlike those before it. `key` holds all that determines its meaning, up to name and metadata;
    `next` is the place of the token after it.
    """

    key: tuple[str | int, ...]
    operands: list[Instruction]
    next: int


class _Form(NamedTuple):
    """The text of shape and opcode, whether an attribute stands between the op's parentheses, whether it is a
    parameter, and whether it applies a computation to elements.
    """

    text: str
    inline: bool
    is_parameter: bool
    applies: bool


class RepeatedLines:
    """The first instruction of each kind of line of one text. `computations` are those that were read. `repeats` maps
    each instruction that was not read to the first of its kind.
    """

    def __init__(self, source: SourceFile, computations: Mapping[str, Computation]) -> None:
        self._source = source
        self._computations = computations
        # An instruction keeps the shapes of its operands alive, so that the numbers in its key stay theirs.
        self._known: dict[tuple[str | int, ...], Instruction] = {}
        self._tails: dict[str, tuple[str, Metadata | None, str]] = {}
        self._forms: dict[str, _Form] = {}
        self._numbered: dict[str, Attributes] = {}
        self.missed: DistinctLine | None = None
        self.repeats: dict[Instruction, Instruction] = {}
        self._kinds: dict[tuple[tuple[int, ...], ...], str] = {}
        self._kind_of: dict[Computation, str | None] = {}

    def read(self, place: int, body: Body) -> int:
        """Appends the instructions of the lines from `place` on whose kind is known. Returns the place of the first
        other one; `missed` is that line if it has the common form.
        """
        self.missed = None
        made: dict[str, Instruction] = {}
        root, place = self._read(place, body, made)
        if made:
            instructions = list(made.values())
            body.computation.extend(instructions)
        if root is not None:
            body.computation.root = root
        return place

    def _read(self, place: int, body: Body, made: dict[str, Instruction]) -> tuple[Instruction | None, int]:
        """Adds these instructions to `made`, by name; returns the root among them and the place of the other line."""
        source, forms, poisoned, earlier = self._source, self._forms, body.poisoned, body.computation.names
        text, tails, known_lines, repeats = source.text, self._tails, self._known, self.repeats
        match_line, last = _LINE.match, None
        while (match := match_line(text, place)) is not None:
            root, name, head, inside, tail = match.groups()
            form = forms.get(head) or self._form(head)
            if form is None or name in made or name in earlier or name in _NOT_NAMES or name in poisoned:
                break
            if root and body.root_place is not None:
                break
            head, inline, is_parameter, applies = form
            operands: list[Instruction] = []
            is_numbered = is_parameter and inside.isdigit() and len(inside) < 9
            depends: list[str | int] = []
            if not inline:
                words = inside[1:].split(", %") if inside[:1] == "%" else inside.split(", ")
                for word in words if inside else ():
                    operand = made.get(word) or earlier.get(word)
                    if operand is None:
                        return last, place
                    operands.append(operand)
                    depends.append(id(operand.shape))
            elif not is_numbered:
                depends.append(inside)
            attributes, metadata, rest = tails.get(tail) or self._tail(tail)
            callee: Computation | None = None
            if applies:
                attributes, callee = self._applied(attributes)
            key = (head, attributes, rest, *depends)
            known = known_lines.get(key)
            if known is None:
                self.missed = DistinctLine(key, operands, match.end())
                break
            start, end = match.start(2), match.start(5)
            given = self._numbers(inside) if is_numbered else known.attributes
            if callee is not None and callee not in known.called():
                given = map_called(given, {known.called()[0]: callee}.__getitem__)
            place = match.end()
            made[name] = copy = known.repeated(
                name, operands, given, Location(source, start - (text[start - 1] == "%"), end), metadata)
            repeats[copy] = known
            if root:
                body.root_place, last = start, copy
        return last, place

    def _applied(self, attributes: str) -> tuple[str, Computation | None]:
        """Returns attributes that name the kind of the computation which is applied, and that computation. The same
        attributes and None if it has no kind.
        """
        found = None if '"' in attributes or "/" in attributes else _APPLIED.search(attributes)
        callee = None if found is None else self._computations.get(found[1])
        kind = None if callee is None else self._kind(callee)
        if found is None or kind is None:
            return attributes, None
        return attributes[: found.start()] + kind + attributes[found.end() :], callee

    def _kind(self, computation: Computation) -> str | None:
        """Returns a text that only computations with equal instructions share; None for large ones, and for those that
        return tuples.
        """
        if computation not in self._kind_of:
            nodes = list(computation) if len(computation) <= _SMALL else []
            places, first = {i: n for n, i in enumerate(nodes)}, self.repeats
            parts = [(id(first.get(i, i)), _own(i), *[places[o] for o in i.operands]) for i in nodes]
            plain = nodes and computation.root.shape.is_array and not computation.execution_thread
            kind = (*parts, (places[computation.root],)) if plain else None
            self._kind_of[computation] = None if kind is None else self._kinds.setdefault(kind, f"%{computation.name}")
        return self._kind_of[computation]

    def _tail(self, text: str) -> tuple[str, Metadata | None, str]:
        """Returns the attributes, the metadata and further attributes of the rest of a line."""
        match = _REST.fullmatch(text)
        assert match is not None
        metadata = None if match[2] is None else metadata_of(match[2])
        found = self._tails[text] = match[1], metadata, match[3]
        return found

    def _form(self, head: str) -> _Form | None:
        op = find_op(head.split()[-1])
        if op is None:
            return None
        applies = op.interface(Applies) is not None
        found = _Form(head, inline_field(op.attributes) is not None, op.role is Role.PARAMETER, applies)
        self._forms[head] = found
        return found

    def _numbers(self, number: str) -> Attributes:
        """Returns the attributes of a parameter of this number."""
        found = self._numbered.get(number)
        if found is None:
            found = self._numbered[number] = ParameterAttributes(int(number))
        return found

    def keep(self, line: DistinctLine, instruction: Instruction) -> None:
        """Makes the instruction that was read from this line known, if the line alone determines it."""
        if instruction.operands == line.operands and not instruction.control_predecessors:
            self._known[line.key] = instruction


def _own(instruction: Instruction) -> int:
    """Returns a number that only equal attributes of one op share."""
    is_parameter = instruction.op.role is Role.PARAMETER
    return instruction.attributes_as(ParameterAttributes).number if is_parameter else id(instruction.attributes)
