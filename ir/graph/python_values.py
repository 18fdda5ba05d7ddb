"""Conversion of Python values to attributes, shapes and literals, for `Computation.build`.

Attributes are given by keyword, shapes as text, literals as arrays. Every error of the caller is a CompileError that
names the op, the attribute and its type, so that programs built in Python get the same diagnostics as programs in text.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import numpy as np

from ..diagnostics import fail
from ..sharding.replica_groups import ExplicitGroups
from ..strings import BracedText
from ..types.element_type import ELEMENT_TYPES, ElementType, from_numpy
from ..types.literal import Literal
from ..types.shape import Shape, array, tuple_shape
from .attributes import NONE, AttributeField, Attributes, Callee, Identifier, attribute_fields
from .dynamic_sizes import result_shape
from .op import OPS, AnyOp, ShapeError, op_named

_PART = re.compile(r"\s*(?:(\w+)\[([\d,\s]*)\]|([(),]))\s*")
_LARGEST = 2**63 - 1


def known_op(opcode: str) -> AnyOp:
    """Returns the op of an opcode. Raises CompileError for an unknown one."""
    try:
        return op_named(opcode)
    except (AttributeError, KeyError, TypeError):  # no text is none, either
        fail(f"there is no opcode {opcode!r}", help=_near(str(opcode), OPS))


def checked_use(
    op: AnyOp, operands: Sequence[Shape], attributes: Mapping[str, Any], shape: Shape | str | None
) -> tuple[Attributes, Shape]:
    """Returns the attributes and the result shape of an op on these operands. Raises CompileError."""
    low, high = op.arity
    if len(operands) < low or (high is not None and len(operands) > high):
        wanted = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        fail(f"{op.opcode}: takes {wanted} operand{'s' * (wanted != '1')}, found {len(operands)}")
    given = attributes_of(op, attributes)
    declared = shape_of(shape) if isinstance(shape, str) else shape
    try:
        inferred = result_shape(op, operands, given, declared).without_layout()
    except ShapeError as error:
        fail(error.message, help=error.help)
    if declared is None:
        return given, inferred
    if not inferred.compatible(declared):
        fail(f"{op.opcode}: the shape given is {declared.without_layout()} but operands give {inferred}")
    return given, declared


def attributes_of(op: AnyOp, given: Mapping[str, Any]) -> Attributes:
    """Returns the attributes of an op from Python values by name: lists for tuples, text for enums, identifiers and
    labels of dimensions, arrays for literals, lists of device numbers for replica groups. Raises CompileError.
    """
    fields = attribute_fields(op.attributes)
    for name in given:
        if name not in fields:
            has = f"{op.opcode} has {', '.join(fields)}" if fields else f"{op.opcode} has no attributes of its own"
            near = _near(name, fields)
            fail(f"{op.opcode}: unknown attribute '{name}'", help=f"{near} {has}" if near else has)
    missing = [field.name for field in fields.values() if field.required and field.name not in given]
    if missing:
        fail(f"{op.opcode}: attribute '{missing[0]}' is missing", help=f"pass {missing[0]}=..")
    if not fields:
        return NONE
    return op.attributes(**{name: _converted(op, fields[name], value) for name, value in given.items()})


def shape_of(text: str) -> Shape:
    """Parses `f32[4,8]`, `pred[]` or `(f32[4], (s32[], token[]))` as a shape without layout. Raises CompileError."""
    stack: list[list[Shape]] = [[]]
    place, after_value = 0, False
    while place < len(text):
        match = _PART.match(text, place)
        # A value or `(` begins an entry; `,` and `)` follow one; `()` is the empty tuple.
        begins = match is not None and match[3] not in (",", ")")
        empty = match is not None and match[3] == ")" and text[:place].rstrip().endswith("(")
        if match is None or (begins == after_value and not empty) or (match[3] in (",", ")") and len(stack) == 1):
            fail(f"'{text}' is not a shape", help="for example f32[4,8] or (f32[], s32[4])")
        if match[1] is not None:
            stack[-1].append(array(_element(match[1]), _dims(text, match[2])))
        elif match[3] == "(":
            stack.append([])
        elif match[3] == ")":
            elements = tuple(stack.pop())
            stack[-1].append(tuple_shape(elements))
        after_value = match[1] is not None or match[3] == ")"
        place = match.end()
    if len(stack) != 1 or not after_value or len(stack[0]) != 1:
        fail(f"'{text}' is not a shape", help="for example f32[4,8] or (f32[], s32[4])")
    return stack[0][0]


def literal_of(value: Any, element: str | None = None) -> Literal:
    """Returns a literal of a number, nested lists or an array. Python floats become f32 and integers s32, unless
    `element` names another type; arrays keep theirs. Raises CompileError.
    """
    if isinstance(value, Literal):
        return value
    try:
        found = np.array(value)  # a copy: literals are never written to
    except ValueError:
        fail("constant: the nested lists have different lengths")
    if element is None and not isinstance(value, np.ndarray | np.generic):
        element = {"f": "f32", "i": "s32", "c": "c64"}.get(found.dtype.kind)
        fits = found.dtype.kind != "i" or not found.size or (found.min() >= -(2**31) and found.max() < 2**31)
        if not fits:
            fail("constant: a number does not fit s32", help="name the type, for example element='s64'")
    if element is not None:
        dtype = _element(element).numpy
        if dtype is None or found.dtype.kind not in "biufcV":
            fail(f"constant: {value!r} cannot be converted to {element}")
        found = found.astype(dtype)
    try:
        from_numpy(found.dtype)
    except KeyError:
        fail(f"constant: HLO has no element type for {found.dtype}")
    return Literal(found)


def _dims(text: str, sizes: str) -> tuple[int, ...]:
    try:
        dims = tuple(int(size) for size in sizes.split(",")) if sizes.strip() else ()
    except ValueError:
        fail(f"'{text}' is not a shape", help="for example f32[4,8] or (f32[], s32[4])")
    if any(size > _LARGEST for size in dims):
        fail(f"'{text}': a dimension does not fit 64 bits")
    return dims


def _element(name: str) -> ElementType:
    found = ELEMENT_TYPES.get(name)
    if found is None:
        fail(f"unknown element type '{name}'", help=_near(name, ELEMENT_TYPES))
    return found


def _near(word: str, choices: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else None


# -- attribute values


def _converted(op: AnyOp, field: AttributeField, value: Any) -> Any:
    if value is None and not field.required:
        return None
    try:
        return _value(field.type, value)
    except (TypeError, ValueError, KeyError):
        fail(f"{op.opcode}: attribute '{field.name}' takes {described(field.type)}, found {value!r}")


def _value(kind: Any, value: Any) -> Any:
    """Converts `value` to the field type `kind`. Raises TypeError or ValueError."""
    if kind is Literal:
        return literal_of(value)
    if _is_enum(kind):
        return kind(value)
    if (kind is Identifier or kind is BracedText) and isinstance(value, str):
        return _verbatim(kind, value)
    parse = getattr(cast("Any", kind), "parse", None)
    if isinstance(value, str) and parse is not None:  # dim_labels="b0f_0io->b0f"
        return parse(value)
    if kind in (int, float) and isinstance(value, np.generic):
        value = cast("Any", value).item()
    if typing.get_origin(kind) is tuple:
        return _tuple(typing.get_args(kind), value)
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return _union(typing.get_args(kind), value)
    if kind is float and isinstance(value, int):
        value = float(value)
    if dataclasses.is_dataclass(kind) and isinstance(value, list | tuple | dict):
        return _record(cast("type[Attributes]", kind), value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value


def _verbatim(kind: type[Identifier] | type[BracedText], text: str) -> Identifier | BracedText:
    if (kind is BracedText) != text.startswith("{"):
        raise ValueError
    return kind(text)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _record(kind: type[Any], value: Any) -> Any:
    """Builds a value type from its fields: in order (`(0, 4)` for a SliceDim), by name, or from its only field."""
    fields = attribute_fields(kind)
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value)
    elif len(fields) == 1:
        named = dict.fromkeys(fields, value)
    else:
        named = dict(zip(fields, value, strict=False))
        if len(value) > len(fields):
            raise TypeError
    return kind(**{name: _value(fields[name].type, entry) for name, entry in named.items()})


def _tuple(parts: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError
    entries = cast("Sequence[Any]", value)
    kinds = [parts[0]] * len(entries) if len(parts) == 2 and parts[1] is Ellipsis else list(parts)
    return tuple(_value(kind, entry) for kind, entry in zip(kinds, entries, strict=True))


def _union(options: tuple[Any, ...], value: Any) -> Any:
    if ExplicitGroups in options and isinstance(value, list | tuple):
        return ExplicitGroups(_tuple((tuple[int, ...], ...), value))
    for option in options:
        try:
            return _value(option, value)
        except (TypeError, ValueError):
            continue
    raise TypeError


def described(kind: Any) -> str:
    """Describes a field type in words."""
    if _is_enum(kind):
        return "one of " + ", ".join(str(member.value) for member in kind)
    words: dict[Any, str] = {int: "an integer", bool: "True or False", float: "a number", str: "a string"}
    words |= {Identifier: "an identifier", Callee: "a computation", Literal: "an array", BracedText: "text in braces"}
    if typing.get_origin(kind) is tuple:
        return f"a sequence, each entry {described(typing.get_args(kind)[0])}"
    if ExplicitGroups in typing.get_args(kind):
        return "replica groups, for example [[0, 1], [2, 3]]"
    return words.get(kind) or f"a {getattr(kind, '__name__', kind)}"
