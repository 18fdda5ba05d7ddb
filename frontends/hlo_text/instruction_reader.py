"""Reads instructions: `ROOT name = shape opcode(operands), attributes`.

One regular expression matches the common form of an instruction's head. Everything else (comments, names without
spaces, operands with shapes, nested operands) goes through the cursor step by step, which also finds errors.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from ...ir import ops as ops  # registers all ops
from ...ir.diagnostics import SourceFile
from ...ir.graph.attributes import NONE, ParameterAttributes, attribute_fields, inline_field
from ...ir.graph.dynamic_sizes import may_repeat, result_shape, same_bounds
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Applies, TextForm, has_result_hint
from ...ir.graph.op import OPS, AnyOp, ShapeError, find_op
from ...ir.keywords import KEYWORDS
from ...ir.sharding.sharding import AnySharding, TupleSharding
from ...ir.tools.mixed_precision import inferred_shape
from ...ir.types.element_type import ELEMENT_TYPES
from ...ir.types.literal import Literal
from ...ir.types.shape import Shape
from .attribute_reader import AttributeReader, Common, Own
from .cursor import Poisoned
from .errors import TextError, did_you_mean
from .foreign_names import opcode_help
from .repeated_lines import Body, RepeatedLines
from .scan import COMMENT, IDENT, bracket_end
from .shapes import parse_shape, read_shape, shape_end

NESTING_LIMIT = 60
"""How deep operands may be nested in operands, and computations in computations."""

_HEAD = re.compile(
    rf"\s*(ROOT\s+)?(?:%({IDENT})|({IDENT})(?=\s))\s*=\s*"
    r"([a-z][a-z0-9]*\[[0-9,]*\](?:\{[0-9,]*\})?|\([^()/=]*\))\s+"
    r"([a-z][a-z0-9\-]*)\(([^(){}\"/\[]*)\)",
)
_IDENT = re.compile(IDENT)
_SHAPE_AHEAD = re.compile(rf"[A-Za-z][A-Za-z0-9]*(?:\s|{COMMENT})*\[|\(|b\(")
_CALL_AHEAD = re.compile(rf"({IDENT})\s*\(")
_TEXT = "HLO text begins with HloModule NAME, or with a computation; else it is a single instruction"
_NAMES = "names begin with a letter or _, and a number is a constant, such as f32[] constant(1)"
_FORM = "an instruction is written NAME = SHAPE OPCODE(OPERANDS), the result with ROOT before it"
_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")


@dataclass
class Head:
    """The part of an instruction before its attributes. `inside` is the extent between the parentheses."""

    is_root: bool
    name: str
    start: int
    shape: Shape | None
    shape_place: int
    op: AnyOp
    inside: tuple[int, int]


class InstructionReader(AttributeReader):
    """Reads instructions into a computation."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self._repeated = RepeatedLines(source, self.computations)

    @property
    def repeats(self) -> Set[Instruction]:
        """The instructions of lines that are like earlier ones."""
        return self._repeated.repeats.keys()

    def repeated_lines(self, body: Body) -> None:
        """Reads the lines from the cursor on that are like earlier ones."""
        self.place = self._repeated.read(self.place, body)

    def instruction(self, body: Body) -> None:
        """Reads one instruction. Raises Syntax, or Poisoned if an operand could not be read; the cursor's place is then
        arbitrary.
        """
        line = self._repeated.missed
        self.is_repeatable = True
        instruction = self._new_instruction(body)
        fills_line = line is not None and self.place <= line.next and not self.text[self.place : line.next].strip()
        if line is not None and fills_line and self.is_repeatable:
            self._repeated.keep(line, instruction)

    def _new_instruction(self, body: Body) -> Instruction:
        head = self._head(body)
        computation = body.computation
        if computation.find(head.name) is not None or head.name in body.poisoned:
            earlier = computation.find(head.name)
            self.error(f"instruction '{head.name}' is defined twice", head.start, head.start + len(head.name),
                       notes=self.note("first defined here", earlier.location) if earlier else ())
        body.poisoned.add(head.name)
        body.read = head.name
        instruction = self._finish(body, head)
        body.poisoned.discard(head.name)
        return instruction

    def _finish(self, body: Body, head: Head) -> Instruction:
        inline, operands = self._inside(body, head)
        self.place = head.inside[1] + 1
        shape = _meant(head.op, operands, head.shape)
        attributes, common = self.attribute_list(head.op, inline, shape)
        if shape is None:
            try:
                shape = self._inferred(head.op, operands, attributes)
            except ShapeError as error:
                self.error(error.message, head.start, head.inside[1] + 1, error.help)
        location = self.location(head.start, head.inside[1] + 1)
        op = head.op
        if op.interface(Applies) and _is_tuple_of_result(op, operands, attributes, shape):
            name = body.computation.unique_name(f"{head.name}.element")
            inner = Instruction(name, op, operands, attributes, shape.elements[0], location)
            body.computation.append(inner)
            op, operands, attributes = OPS["tuple"], [inner], NONE
        instruction = Instruction(head.name, op, operands, attributes, shape, location)
        self._annotate(body, instruction, common)
        body.computation.append(instruction)
        if head.is_root:
            if body.root_place is not None:
                self.error("a second ROOT", head.start, head.start + len(head.name),
                           notes=self.note("the first is here", body.computation.root.location))
            body.root_place = head.start
            body.computation.root = instruction
        return instruction

    def _annotate(self, body: Body, instruction: Instruction, common: list[Common]) -> None:
        instruction.parent = body.computation
        for setter, text, start in common:
            setter(self, instruction, text, start)
        if isinstance(instruction.sharding, TupleSharding):
            form = instruction.op.interface(TextForm)
            if form is not None and form.lists_operands:
                instruction.sharding = _of_operands(instruction, instruction.sharding)

    @staticmethod
    def _inferred(op: AnyOp, operands: list[Instruction], attributes: object) -> Shape:
        if has_result_hint(op):
            raise ShapeError(f"{op.opcode}: the result shape must be written", "for example x = f32[8,16] ..")
        low, high = op.arity
        if len(operands) < low or (high is not None and len(operands) > high):
            raise ShapeError(f"{op.opcode}: {arity_text(op)} expected, found {len(operands)}")
        return inferred_shape(op, [o.shape for o in operands], attributes)

    # -- the head

    def _head(self, body: Body) -> Head:
        match = _HEAD.match(self.text, self.place)
        if match is None:
            return self._slow_head(body)
        name = match[2] or match[3]
        start = match.start(2) - 1 if match[2] else match.start(3)
        if name in ELEMENT_TYPES or (name in KEYWORDS and not match[2]):
            return self._slow_head(body)
        try:
            shape = parse_shape(match[4])
        except TextError as error:
            body.poisoned.add(name)
            self.relay(error, match.start(4))
        except ValueError as error:
            self.error(f"shape: {error}", match.start(4), match.end(4))
        op = find_op(match[5]) or self._unknown_opcode(body, name, match[5], match.start(5))
        return Head(match[1] is not None, name, start, shape, match.start(4), op, match.span(6))

    def _slow_head(self, body: Body) -> Head:
        is_root = self.accept_word("ROOT")
        start = self.skip()
        if _SHAPE_AHEAD.match(self.text, start) and body.implicit_parameters:
            return self._anonymous_head(body, start)
        name, start = self.name("instruction name", _TEXT if body.implicit_parameters else _FORM)
        if name in ELEMENT_TYPES:
            body.poisoned.add(name)
            self.error(f"an instruction cannot be called '{name}': that is the name of an element type", start,
                       self.place, f"rename it, to '{name}_' for example, here and where it is used")
        if name in KEYWORDS and self.text[start] != "%":
            self.error(f"'{name}' is a keyword", start, self.place, f"write %{name}")
        if self.text[start] != "%" and self.text.startswith("=", self.place):
            self.error(f"'{name}=' reads as an attribute", start, self.place + 1,
                       "put a space before '=', or % before the name")
        self.expect("=", f"after the name '{name}'", _TEXT if body.implicit_parameters else _FORM)
        body.poisoned.add(name)
        head = self._after_name(body, is_root, name, start)
        body.poisoned.discard(name)
        return head

    def _anonymous_head(self, body: Body, start: int) -> Head:
        return self._after_name(body, True, "_", start)

    def _after_name(self, body: Body, is_root: bool, name: str, start: int) -> Head:
        shape, shape_place = None, self.skip()
        if _SHAPE_AHEAD.match(self.text, shape_place):
            shape = self.shape()
        place = self.skip()
        match = _IDENT.match(self.text, place)
        if match is None:
            self.unexpected("opcode" if shape is not None else "shape or opcode")
        self.place = match.end()
        op = find_op(match[0]) or self._unknown_opcode(body, name, match[0], place)
        opening = self.expect("(", f"after '{match[0]}'")
        return Head(is_root, name, start, shape, shape_place, op, (opening + 1, self._bracket_end(opening) - 1))

    def _bracket_end(self, start: int) -> int:
        try:
            return bracket_end(self.text, start)
        except TextError as error:
            self.relay(error, 0)

    def _unknown_opcode(self, body: Body, name: str, opcode: str, start: int) -> AnyOp:
        body.poisoned.add(name)
        if opcode in ELEMENT_TYPES or opcode in ("HloModule", "ENTRY", "ROOT"):
            help = f"write {opcode}[] for a scalar, {opcode}[8,16] for an array" if opcode in ELEMENT_TYPES else None
            self.error(f"opcode expected, found '{opcode}'", start, start + len(opcode), help)
        self.error(f"opcode '{opcode}' is not supported", start, start + len(opcode), opcode_help(opcode))

    def shape(self) -> Shape:
        """Reads the shape at the cursor."""
        start = self.skip()
        try:
            shape, self.place = read_shape(self.text, start)
        except TextError as error:
            self.relay(error, 0)
        except ValueError as error:
            self.error(f"shape: {error}", start, shape_end(self.text, start))
        return shape

    # -- between the parentheses

    def _inside(self, body: Body, head: Head) -> tuple[Own | None, list[Instruction]]:
        start, end = head.inside
        text = self.text[start:end]
        inline = inline_field(head.op.attributes)
        if inline is None:
            return None, self._operands(body, text, start, end)
        if _holds_literal(head.op) and head.shape is None:
            self.error(f"{head.op.opcode}: the result shape must be written", head.start, end + 1)
        if not text.strip():
            self.error(f"{head.op.opcode}: {inline} expected between the parentheses", end, end + 1)
        return (inline, text, start), []

    def _operands(self, body: Body, text: str, start: int, end: int) -> list[Instruction]:
        find = body.computation.find
        if "/" in text:
            text = _INDEX_COMMENT.sub("", text)
        found: list[Instruction] = []
        if text:
            for word in text.split(", "):
                operand = find(word[1:] if word[:1] == "%" else word)
                if operand is None:
                    return self._slow_operands(body, start, end, 0)
                found.append(operand)
        return found

    def _slow_operands(self, body: Body, start: int, end: int, depth: int) -> list[Instruction]:
        """Reads operands one by one, from `start` to the closing parenthesis at `end`. Like XLA, it accepts extra
        commas.
        """
        found: list[Instruction] = []
        self.place = start
        while self.skip() < end:
            while self.accept(","):
                pass
            if self.skip() == end and found:
                break
            found.append(self._operand(body, depth))
            if self.skip() < end and not self.at(","):
                self.unexpected("',' or ')' after an operand")
        return found

    def _operand(self, body: Body, depth: int) -> Instruction:
        start = self.skip()
        declared = self.shape() if _SHAPE_AHEAD.match(self.text, start) else None
        place = self.skip()
        call = _CALL_AHEAD.match(self.text, place)
        if call is not None:
            return self._nested(body, call, declared, start, depth)
        if declared is not None and body.implicit_parameters and self.text[place] in ",)":
            name = body.computation.unique_name(f"_{len(body.computation.parameters)}")
        else:
            name, place = self.name("operand", _NAMES)
        operand = body.computation.find(name)
        if operand is None:
            operand = self._undefined(body, name, declared, place)
        if declared is not None and not may_repeat(declared, operand.shape):
            self.error(f"operand '{name}' is {operand.shape.without_layout()}, not {declared.without_layout()}",
                       start, self.place, notes=self.note(f"{name} is defined here", operand.location))
        return operand

    def _undefined(self, body: Body, name: str, declared: Shape | None, place: int) -> Instruction:
        if name == body.read:
            self.error(f"instruction '{name}' is its own operand", place, self.place)
        if name in body.poisoned and not body.implicit_parameters:
            raise Poisoned
        if body.implicit_parameters and declared is not None:
            op = OPS["parameter"]
            attributes = ParameterAttributes(len(body.computation.parameters))
            parameter = Instruction(name, op, [], attributes, declared, self.location(place, self.place))
            body.computation.append(parameter)
            return parameter
        known = [i.name for i in body.computation][-1000:]
        help = "in a single instruction every operand needs a shape" if body.implicit_parameters else did_you_mean(
            name, known, "operands must be defined earlier in the same computation")
        return self.error(f"no instruction '{name}' so far", place, self.place, help)

    def _nested(self, body: Body, call: re.Match[str], declared: Shape | None, start: int, depth: int) -> Instruction:
        if depth >= NESTING_LIMIT:
            self.error(f"operands nested deeper than {NESTING_LIMIT} levels", start)
        op = find_op(call[1]) or self._unknown_opcode(body, "", call[1], call.start(1))
        end = self._bracket_end(call.end() - 1) - 1
        name = inline_field(op.attributes)
        if name is not None:
            inline: Own | None = (name, self.text[call.end() : end], call.end())
            operands: list[Instruction] = []
        else:
            inline, operands = None, self._slow_operands(body, call.end(), end, depth + 1)
        self.place = end + 1
        declared = _meant(op, operands, declared)
        given = [inline] if inline is not None else []
        attributes = self.own_attributes(op, given, declared, end)
        if declared is None:
            try:
                declared = self._inferred(op, operands, attributes)
            except ShapeError as error:
                self.error(error.message, call.start(), end + 1, error.help)
        name = body.computation.unique_name(op.opcode + ".anon")
        instruction = Instruction(name, op, operands, attributes, declared, self.location(start, end + 1))
        body.computation.append(instruction)
        return instruction


def _holds_literal(op: AnyOp) -> bool:
    """Returns whether a literal stands between the parentheses."""
    return any(field.inline and field.type is Literal for field in attribute_fields(op.attributes).values())


def _of_operands(instruction: Instruction, sharding: TupleSharding) -> AnySharding:
    """Returns the sharding of one leaf if the text lists one per leaf of the operands, with or without the token, and
    all are equal; else the tuple as it is.
    """
    given = sum(o.shape.num_leaves for o in instruction.operands)
    lists = len(sharding.elements) > 1 and len(sharding.elements) in (given, given - 1)
    different = set(sharding.elements)
    return different.pop() if lists and len(different) == 1 else sharding


def _meant(op: AnyOp, operands: list[Instruction], declared: Shape | None) -> Shape | None:
    """Returns the shape that the op makes of the declared one; None if none is declared."""
    form = op.interface(TextForm)
    return declared if declared is None or form is None else form.meant_shape([o.shape for o in operands], declared)


def _is_tuple_of_result(op: AnyOp, operands: list[Instruction], attributes: object, shape: Shape) -> bool:
    """Returns whether the declared shape is a tuple of the op's one array; XLA accepts it in place of the array."""
    if len(shape.elements) != 1 or len(operands) < op.arity[0]:
        return False
    element = next(iter(shape.elements))
    try:
        return same_bounds(result_shape(op, [o.shape for o in operands], attributes, element), element)
    except ShapeError:
        return False


def arity_text(op: AnyOp) -> str:
    """Returns `2 operands`, `at least 1 operand`, .. for messages."""
    low, high = op.arity
    count = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
    return f"{count} operand{'' if count in ('1', 'at least 1') else 's'}"
