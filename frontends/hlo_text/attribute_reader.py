"""Reads the attributes after an instruction's operands.

An op's own attributes are parsed by the types of the fields of its attribute class, the attributes common to all
instructions by the table COMMON. Values are cached by their text, and whole attribute objects by the texts of all their
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ...ir.diagnostics import Diagnostic, SourceFile
from ...ir.graph.attributes import CALLEES, NONE, AttributeField, Attributes, Callee, attribute_fields, inline_field
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import NO_FRONTEND_ATTRIBUTES, FrontendAttributes, Instruction, Metadata
from ...ir.graph.interfaces import Applies
from ...ir.graph.op import AnyOp
from ...ir.ops.structure import element_index
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.sharding import AnySharding, Sharding, TupleSharding
from ...ir.strings import ESCAPE, BracedText, unescape
from ...ir.types.literal import Literal
from ...ir.types.shape import Shape
from .cursor import Cursor, Poisoned
from .errors import TextError, did_you_mean
from .literals import read_literal, read_shaped_literal
from .scan import IDENT, blank_comments, bracket_end, raw_end, skip_space, split_list, string_end, value_end
from .shapes import read_shape
from .shardings import parse_sharding, parse_shardy
from .values import codec, example, string_or_raw

SHARDY_KEYS = ("xla.sdy.sharding", "xla.sdy.in_shardings", "xla.sdy.out_shardings")
"""Shardy's sharding of a value, and those outside a manual region of what goes into it and what comes out."""

_COMMA = re.compile(rf",\s*({IDENT})=")
_NAMED = re.compile(rf"({IDENT})=")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*|\"(?:[^\"\\]|\\.)*\"")
# Values without nested braces, comments or single quotes, which most are.
SIMPLE_BRACES = re.compile(r"\{(?:[^{}\"'/]++|\"(?:[^\"\\]++|\\.)*+\")*+\}", re.DOTALL)
_SIMPLE = re.compile(
    SIMPLE_BRACES.pattern + r"|%?[A-Za-z0-9_.\-]++(?=[,\s])|\"(?:[^\"\\]++|\\.)*+\"", re.DOTALL
)

Own = tuple[str, str, int]  # name, text, place
Common = tuple[Callable[[Any, Instruction, str, int], None], str, int]


class AttributeReader(Cursor):
    """Reads attribute lists. `computations` are those defined so far; `meshes` are Shardy's meshes."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self.computations: dict[str, Computation] = {}
        self.poisoned_computations: set[str] = set()
        self.meshes: Mapping[str, Mesh] = {}
        self.warnings: list[Diagnostic] = []
        self.is_repeatable = True
        self._known: dict[tuple[Any, ...], Attributes] = {}
        self._known_shardy: dict[str, tuple[tuple[Sharding, ...], bool]] = {}

    def inline_computation(self, start: int) -> Computation:
        """Reads a computation written inline as an attribute value. The reader of computations implements it."""
        raise NotImplementedError

    def with_plain_result(self, computation: Computation) -> Computation:
        """Returns the computation, without a tuple around a single result. The reader of computations implements it."""
        raise NotImplementedError

    def attribute_list(self, op: AnyOp, inline: Own | None, declared: Any) -> tuple[Attributes, list[Common]]:
        """Reads everything after the closing parenthesis. `inline` is the attribute that stood inside the parentheses;
        `declared` is the result shape, which a literal between the parentheses needs.
        """
        closing = self.place - 1
        fields = attribute_fields(op.attributes)
        own: list[Own] = [inline] if inline is not None else []
        common: list[Common] = []
        text = self.text
        seen: set[str] = set()
        while True:
            match = _COMMA.match(text, self.place) or self._spaced_comma()
            if match is None:
                break
            name = match[1]
            if name in seen:
                self.error(f"{op.opcode}: attribute '{name}' is given twice", match.start(1), match.end(1))
            seen.add(name)
            field = fields.get(name)
            if field is not None and field.inline:
                field = None
            kind = field.type if field is not None else None
            setter = COMMON.get(name) if field is None else None
            spellings = op.attributes.spellings.get(name) if field is None and setter is None else None
            if field is None and setter is None and spellings is None:
                self._unknown_attribute(op, name, match.start(1))
            start, end = self._value_extent(match.end(), kind, name)
            value = text[start:end]
            if setter is not None:
                common.append((setter, value, start))
            elif spellings is None:
                own.append((name, value, start))
            elif value not in spellings:
                self.error(f"{op.opcode}: {name}={value} is not known here", start, end)
            elif (ours := spellings[value]) is not None:
                own.append((*ours, start))
        return self.own_attributes(op, own, declared, closing), common

    def _spaced_comma(self) -> re.Match[str] | None:
        """Returns the next attribute's name where comments or line breaks surround the comma; None if no comma follows.
        """
        if not self.accept_comma():
            return None
        match = _NAMED.match(self.text, self.skip())
        if match is None:
            self.unexpected("attribute name after ','", "its '=' must follow the name without a space")
        return match

    def _value_extent(self, start: int, kind: Any, name: str) -> tuple[int, int]:
        match = _SIMPLE.match(self.text, start)
        if match is not None and kind is not Literal and kind is not Shape:
            self.place = match.end()
            return match.span()
        try:
            start = skip_space(self.text, start)
            if kind is Literal:
                self.place = self._literal_end(start)
            elif kind is Shape:
                self.place = read_shape(self.text, start)[1]
            else:
                raw = kind is BracedText or name in ("backend_config", "frontend_attributes")
                self.place = value_end(self.text, start, raw)
        except TextError as error:
            self.error(f"attribute '{name}': {error.message}", error.start, error.end, error.help)
        return start, self.place

    def _literal_end(self, start: int) -> int:
        if self.text.startswith("(", start):
            return bracket_end(self.text, start)
        _, place = read_shape(self.text, start)
        place = skip_space(self.text, place)
        if self.text[place : place + 1] in ("{", "("):
            return value_end(self.text, place) if self.text[place] == "{" else bracket_end(self.text, place)
        return value_end(self.text, place)

    def _unknown_attribute(self, op: AnyOp, name: str, start: int) -> None:
        own = [f.name for f in attribute_fields(op.attributes).values() if not f.inline]
        allowed = f"{op.opcode} has {', '.join(own)}" if own else f"{op.opcode} has no attributes of its own"
        help = did_you_mean(name, [*own, *COMMON], f"{allowed}; every instruction may have {', '.join(COMMON)}")
        self.error(f"{op.opcode}: unknown attribute '{name}'", start, start + len(name), help)

    def own_attributes(self, op: AnyOp, own: list[Own], declared: Any, closing: int) -> Attributes:
        """Builds the attribute object of an op from the texts of its fields. Missing fields are reported at `closing`.
        """
        fields = attribute_fields(op.attributes)
        if not fields:
            return NONE
        inline = inline_field(op.attributes)
        key = (op.opcode, declared if own and own[0][0] == inline and fields[own[0][0]].type is Literal else None,
               *[(name, text) for name, text, _ in own])
        known = self._known.get(key)
        if known is not None:
            return known
        warned = len(self.warnings)
        values = {name: self._decode(fields[name], text, start, declared if name == inline else None)
                  for name, text, start in own}
        if op.interface(Applies):
            values = {n: self.with_plain_result(v) if isinstance(v, Computation) else v for n, v in values.items()}
        for field in fields.values():
            if field.required and field.name not in values:
                self.error(f"{op.opcode}: attribute '{field.name}' is missing", closing,
                           help=f"it follows the operands, such as {field.name}={example(field.type)}")
        result = op.attributes(**values)
        alike = not any("{" in text and _is_of_one_use(fields[name].type, text) for name, text, _ in own)
        if alike and warned == len(self.warnings):
            self._known[key] = result
        else:
            self.is_repeatable = False
        return result

    def _decode(self, field: AttributeField, text: str, start: int, declared: Any) -> Any:
        kind = field.type
        if kind is Callee:
            return self._called(text, start)
        if kind == CALLEES:
            return self._called_list(text, start)
        try:
            if kind is Literal:
                return self._literal(text, start, declared)
            return codec(kind)(text.strip() if kind is BracedText else blank_comments(text).strip())
        except TextError as error:
            lead = len(text) - len(text.lstrip())
            self.relay(error, start + lead)
        except ValueError as error:
            self.error(f"attribute '{field.name}': {error}", start, start + len(text))

    def _literal(self, text: str, start: int, shape: Any) -> Literal:
        def warn(found: TextError) -> None:
            self.warnings.append(self.warning(found, start, "constant"))

        clean = blank_comments(text)
        if shape is None:
            literal, end = read_shaped_literal(clean, 0, warn)
        else:
            literal, end = read_literal(clean, 0, shape, warn)
        end = skip_space(clean, end)
        if end < len(clean):
            help = "an array stands in braces, such as {1,2}" if clean[end] == "," else None
            raise TextError(f"unexpected '{clean[end]}' after the constant", end, help=help)
        return literal

    def _called(self, text: str, start: int) -> Computation:
        if text.lstrip().startswith("{"):
            return self.inline_computation(start + len(text) - len(text.lstrip()))
        name = text.strip().removeprefix("%")
        found = self.computations.get(name)
        if found is None:
            if name in self.poisoned_computations:
                raise Poisoned
            help = did_you_mean(name, self.computations, "a computation must be defined before it is called")
            self.error(f"no computation '{name}' so far", start, start + len(text), help)
        return found

    def _called_list(self, text: str, start: int) -> tuple[Computation, ...]:
        if not text.startswith("{"):
            return (self._called(text, start),)
        return tuple(self._called(name, place) for name, place in self._entries(text, start))

    def _entries(self, text: str, start: int) -> list[tuple[str, int]]:
        """Yields the entries of a list in braces, each with its place."""
        if not text.startswith("{"):
            self.error("list in braces expected", start, start + len(text))
        clean = blank_comments(text)
        try:
            return [(clean[a:b], start + a) for a, b in split_list(clean, 1, len(clean) - 1)]
        except TextError as error:
            self.relay(error, start)

    # -- attributes common to all instructions

    def set_sharding(self, instruction: Instruction, text: str, start: int) -> None:
        try:
            instruction.sharding = parse_sharding(text)
        except TextError as error:
            self.relay(error, start)

    def set_frontend_attributes(self, instruction: Instruction, text: str, start: int) -> None:
        try:
            instruction.frontend_attributes = parse_frontend_attributes(text)
        except TextError as error:
            self.relay(error, start)
        for key in SHARDY_KEYS:
            shardy = instruction.frontend_attributes.get(key)
            if shardy is not None:
                instruction.shardy = self._shardy(instruction, key, shardy, text, start)

    def _shardy(
        self, instruction: Instruction, key: str, value: str | BracedText, text: str, start: int
    ) -> AnySharding:
        key_place = text.index(key)
        quote_place = text.find('"', key_place)
        if isinstance(value, BracedText) or quote_place < 0:
            self.error(f"{key} must be a string", start + key_place, start + key_place + len(key))
        try:
            known = self._known_shardy.get(value)
            if known is None:
                known = self._known_shardy[value] = parse_shardy(value, self.meshes)
            found, per_value = known
        except TextError as error:
            offset = quote_place + 1
            begin, end = (offset + _escaped_place(text[offset:], p) for p in (error.start, error.end))
            self.error(error.message, start + begin, start + end, error.help)
        if instruction.shape.is_tuple:
            return TupleSharding(found) if per_value else found[0]
        own = found
        index = element_index(instruction)
        if index is not None and len(found) == len(instruction.operands[0].shape.elements):
            own = found[index : index + 1]  # each result of an op has the list of all of them
        if len(own) != 1:
            self.error(f"{key}: {len(found)} shardings for one value", start + quote_place)
        return own[0]

    def set_control_predecessors(self, instruction: Instruction, text: str, start: int) -> None:
        assert instruction.parent is not None
        found: list[Instruction] = []
        for word, place in self._entries(text, start):
            name = word.removeprefix("%")
            predecessor = instruction.parent.find(name)
            if predecessor is None or predecessor is instruction:
                self.error(f"control-predecessors: no instruction '{name}' so far", place, place + max(1, len(word)))
            found.append(predecessor)
        instruction.control_predecessors = tuple(found)

    def set_metadata(self, instruction: Instruction, text: str, start: int) -> None:
        if not text.startswith("{"):
            self.error("metadata: text in braces expected", start, start + len(text))
        instruction.metadata = metadata_of(text)

    def set_backend_config(self, instruction: Instruction, text: str, start: int) -> None:
        if text.startswith("{"):
            instruction.backend_config = BracedText(text)
        elif text[0] in "\"'":
            instruction.backend_config = string_or_raw(text)
        else:
            self.error("backend_config: string or text in braces expected", start, start + len(text))


_TRUTH, _STATISTIC = r"\s*(?:true|false)\s*", r"\s*[\w.\-]+=\s*-?(?:nan|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*"
_REPLICATION = re.compile(rf"\{{(?:{_TRUTH}(?:,{_TRUTH})*+|\s*)\}}")
_STATISTICS = re.compile(rf"\{{\s*(?:visualizing_index=\s*-?\d+\s*(?:,{_STATISTIC})*+)?\}}")
_BRACES = re.compile(r"\{.*\}", re.DOTALL)


def _verbatim(
    name: str, form: re.Pattern[str], help: str, per_leaf: re.Pattern[str] | None = None
) -> Callable[[AttributeReader, Instruction, str, int], None]:
    def set_other(reader: AttributeReader, instruction: Instruction, text: str, start: int) -> None:
        clean = blank_comments(text)
        if not form.fullmatch(clean.strip()):
            reader.error(f"{name}: {text} cannot be read", start, start + len(text), f"for example {help}")
        leaves = instruction.shape.num_leaves
        if per_leaf is not None and (count := len(per_leaf.findall(clean))) != leaves:
            reader.error(f"{name}: {count} values for {leaves} leaves", start, start + len(text))
        instruction.other = tuple(sorted([*instruction.other, (name, text)], key=lambda pair: OTHER.index(pair[0])))

    return set_other


OTHER = ("parameter_replication", "statistics", "origin")

COMMON: dict[str, Callable[[Any, Instruction, str, int], None]] = {
    "sharding": AttributeReader.set_sharding,
    "frontend_attributes": AttributeReader.set_frontend_attributes,
    "control-predecessors": AttributeReader.set_control_predecessors,
    "parameter_replication": _verbatim(
        "parameter_replication", _REPLICATION, "{true,false}, one per leaf", per_leaf=re.compile(_TRUTH)
    ),
    "statistics": _verbatim("statistics", _STATISTICS, "{visualizing_index=0,flops=1.5}"),
    "origin": _verbatim("origin", _BRACES, '{{"name"}}'),
    "metadata": AttributeReader.set_metadata,
    "backend_config": AttributeReader.set_backend_config,
}


@lru_cache(maxsize=65536)
def parse_frontend_attributes(text: str) -> FrontendAttributes:
    """Parses `{k="v",k2={raw}}`; raw values are kept verbatim; of a repeated key the last one counts. Raises TextError.
    """
    if not text.startswith("{"):
        raise TextError("frontend attributes: '{' expected", 0)
    found: dict[str, str | BracedText] = {}
    place = skip_space(text, 1)
    while not text.startswith("}", place):
        key = _KEY.match(text, place)
        if key is None:
            raise TextError("frontend attributes: key expected", place)
        name = unescape(key[0][1:-1]) if key[0].startswith('"') else key[0]
        if not text.startswith("=", key.end()):
            raise TextError("frontend attributes: '=' expected right after the key", key.end())
        place = skip_space(text, key.end() + 1)
        if text.startswith("{", place):
            end = raw_end(text, place)
            found[name] = BracedText(text[place:end])
        elif text[place : place + 1] in ('"', "'"):
            end = string_end(text, place)
            found[name] = string_or_raw(text[place:end])
        else:
            raise TextError("frontend attributes: string or text in braces expected", place)
        place = skip_space(text, end)
        if text.startswith(",", place):
            place = skip_space(text, place + 1)
        elif not text.startswith("}", place):
            help = 'a quote in a text is written \\"' if text[place - 1] == '"' else None
            raise TextError("frontend attributes: ',' or '}' expected", place, help=help)
    return found or NO_FRONTEND_ATTRIBUTES


def _is_of_one_use(kind: Any, text: str) -> bool:
    """Returns whether the same text has another meaning elsewhere: inline computations, and omitted values."""
    return kind in (Callee, CALLEES) or (kind is Literal and "..." in text)


@lru_cache(maxsize=65536)
def metadata_of(text: str) -> Metadata:
    return Metadata(text[1:-1])


_UNIT = re.compile(rf"{ESCAPE.pattern}|.", re.DOTALL)


def _escaped_place(text: str, place: int) -> int:
    """Returns the offset in an escaped string of the character at `place` of the unescaped one."""
    offset = 0
    for number, unit in enumerate(_UNIT.finditer(text)):
        if number == place:
            return unit.start()
        offset = unit.end()
    return offset
