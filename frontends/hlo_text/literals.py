"""Parses literals.

An array is parsed in two steps. First the skeleton of braces is compared with the one its shape requires (by length
before it is built, so that an absurd shape costs nothing). Then Python's number parsers and numpy parse the numbers of
each row. Names and pairs (nan, inf, true, complex) are parsed token by token. One deliberate difference from XLA's
parser: `-0` in a float literal is minus zero, because XLA prints minus zero like that.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...ir.types.element_type import ELEMENT_TYPES, ElementType, Kind
from ...ir.types.literal import Literal, unknown
from ...ir.types.literal_text import MANTISSA_BITS
from ...ir.types.shape import UNBOUNDED, Shape
from .errors import DEPTH_LIMIT, TextError
from .scan import blank_comments, bracket_end, skip_space
from .shapes import read_shape

Warn = Callable[[TextError], None]

_TOKEN = r"(?:-?nan\(0x[0-9a-fA-F]+\)|[^\s,(){}]+)"
_PAIR = re.compile(rf"\(\s*({_TOKEN})\s*,\s*({_TOKEN})\s*\)")
_NUMBER = re.compile(r"-?(?:\d+\.\d*|\d+|(?<=-)\.\d+)(?:[eE][+-]?\d+)?")
_NAN = re.compile(r"(-?)nan(?:\((0x[0-9a-fA-F]+)\))?")
_NAN_TOKEN = re.compile(_TOKEN)
_NOT_PLAIN = re.compile(r"[^-+0-9.eE,\s]|[\s,][.+]|\A[.+]")
_PREDS = {"0": False, "1": True, "false": False, "true": True}
_SPECIAL = frozenset(("nan", "-nan", "inf", "-inf"))
_ROW = re.compile(r"\{([^{}]*)\}")
_ALL_VALUES = "write all values in braces, or broadcast a scalar constant"
_LARGEST_FILLED = 1 << 28  # bytes; the text does not limit the size of an array of which it names one element
_ELIDED = re.compile(r"\{[^{}]*\.\.\.\s*\}")


def parse_literal(text: str, shape: Shape) -> Literal:
    """Parses the value of this shape. Raises TextError, also for numbers outside the range of the type."""
    literal, end = read_literal(blank_comments(text), 0, shape)
    end = skip_space(text, end)
    if end < len(text):
        raise TextError(f"unexpected '{text[end]}' after the literal", end)
    return literal


def read_literal(
    text: str, start: int, shape: Shape, warn: Warn | None = None, depth: int = 0
) -> tuple[Literal, int]:
    """Parses the value at `start`; returns it and where it ends. Comments must have been blanked. Raises TextError.

    `warn` receives warnings about ambiguous values.
    """
    start = skip_space(text, start)
    elided = _ELIDED.match(text, start)
    if elided is not None:
        return unknown(shape), elided.end()
    if shape.is_tuple:
        return _tuple(text, start, shape, warn, depth)
    element = shape.element
    if element.numpy is None:
        raise TextError(f"constants of type {element.name} are not supported", start)
    if not shape.rank:
        scalar, end = _scalar(text, start, element)
        return Literal(scalar), end
    if not text.startswith("{", start):
        return _first_element(text, start, shape, warn)
    end = bracket_end(text, start)
    return Literal(_array(text[start:end], start, shape, element)), end


def read_shaped_literal(text: str, start: int, warn: Warn | None = None, depth: int = 0) -> tuple[Literal, int]:
    """Parses a literal with its own shapes, `s32[2]{0} {1, 2}` or `( s32[] 1, pred[] true )`; returns it and where it
    ends.
    """
    start = skip_space(text, start)
    if not text.startswith("(", start):
        shape, place = read_shape(text, start)
        return read_literal(text, place, shape, warn)
    if depth > DEPTH_LIMIT:
        raise TextError(f"nested deeper than {DEPTH_LIMIT} levels", start)
    elements: list[Literal] = []
    place = skip_space(text, start + 1)
    while not text.startswith(")", place):
        element, place = read_shaped_literal(text, place, warn, depth + 1)
        elements.append(element)
        place = skip_space(text, place)
        if text.startswith(",", place):
            place = skip_space(text, place + 1)
        elif not text.startswith(")", place):
            raise TextError("',' or ')' expected after an element of a tuple", place)
    return Literal(None, tuple(elements)), place + 1


def _tuple(text: str, start: int, shape: Shape, warn: Warn | None, depth: int) -> tuple[Literal, int]:
    if not text.startswith("(", start):
        raise TextError(f"constant of shape {shape.without_layout()}: '(' expected", start)
    if depth > DEPTH_LIMIT:
        raise TextError(f"nested deeper than {DEPTH_LIMIT} levels", start)
    place = start + 1
    elements: list[Literal] = []
    for number, element in enumerate(shape.elements):
        place = skip_space(text, place)
        if number:
            if text.startswith(")", place):
                raise TextError(f"tuple constant: {len(shape.elements)} elements expected, found {number}", place)
            place += text.startswith(",", place)  # XLA does not require it
        literal, place = read_literal(text, place, element, warn, depth + 1)
        elements.append(literal)
    place = skip_space(text, place)
    if not text.startswith(")", place):
        raise TextError(f"tuple constant: ')' expected after {len(shape.elements)} elements", place)
    return Literal(None, tuple(elements)), place + 1


def _first_element(text: str, start: int, shape: Shape, warn: Warn | None) -> tuple[Literal, int]:
    """Parses an array written as a single number: like XLA, it becomes the first element, and the others are zero."""
    element, what = shape.element, f"constant of shape {shape.without_layout()}"
    if element.kind is Kind.COMPLEX or 0 in shape.dims or text.startswith("[", start):
        raise TextError(f"{what}: '{{' expected", start, help=_ALL_VALUES)
    if UNBOUNDED in shape.dims or shape.byte_size > _LARGEST_FILLED:
        raise TextError(f"a {what} cannot be held", start, help=_ALL_VALUES)
    scalar, end = _scalar(text, start, element)
    values = np.zeros(shape.dims, element.numpy)
    values.reshape(-1)[0] = scalar
    if values.size > 1 and scalar != 0 and warn is not None:
        warn(TextError(f"{what}: a single number is the first element, the others are zero", start, end, _ALL_VALUES))
    return Literal(values), end


def _scalar(text: str, start: int, element: ElementType) -> tuple[Any, int]:
    match = _PAIR.match(text, start) if element.kind is Kind.COMPLEX else _NAN_TOKEN.match(text, start)
    if match is None:
        what = "'(re, im)'" if element.kind is Kind.COMPLEX else "value"
        raise TextError(f"constant of type {element.name}: {what} expected", start)
    return _numbers(match[0], start, element).reshape(()), match.end()


def _array(text: str, start: int, shape: Shape, element: ElementType) -> Any:
    """Parses an array. `text` includes its outer braces; `start` is its offset, for messages."""
    if UNBOUNDED in shape.dims:
        raise TextError("a constant of unbounded size cannot be held", start)
    if shape.rank > 1 or 0 in shape.dims:
        _check_braces(text, start, shape)
    counts = shape.dims[-1]
    if 0 in shape.dims:
        stray = re.search(r"[^{},\s]", text)
        if stray:
            raise TextError(f"constant of shape {shape.without_layout()} has no elements", start + stray.start())
        try:
            return np.zeros(shape.dims, dtype=element.numpy)
        except ValueError:
            raise TextError(f"a constant of shape {shape.without_layout()} cannot be held", start) from None
    rows: list[Any] = []
    for row in _ROW.finditer(text):
        values = _numbers(row[1], start + row.start(1), element)
        if len(values) != counts:
            raise TextError(f"constant of shape {shape.without_layout()}: {counts} values expected here, "
                            f"found {len(values)}", start + row.start(), start + row.end())
        rows.append(values)
    if (shape.rank == 1 and text.count("{") != 1) or not rows:
        raise TextError(f"constant of shape {shape.without_layout()}: braces nest {shape.rank} deep", start)
    values = np.concatenate(rows) if len(rows) > 1 else rows[0]
    return values.reshape(shape.dims)


def _check_braces(text: str, start: int, shape: Shape) -> None:
    """Raises TextError unless the braces of `text` are those of an array of this shape."""
    braces = re.sub(r"[^{}]+", "", text)
    # Brace levels end at the first dimension of size zero, whose braces are empty.
    levels = shape.dims[: shape.dims.index(0) + 1] if 0 in shape.dims else shape.dims
    length, groups = 0, 1
    for size in levels:
        length += 2 * groups
        groups *= size
    wanted = ""
    if length == len(braces):
        for size in reversed(levels):
            wanted = "{" + wanted * size + "}"
    if wanted == braces:
        return
    dims = shape.without_layout()
    for place, depth, counts in _levels(text):
        if depth > len(levels):
            raise TextError(f"constant of shape {dims}: braces nest deeper than {shape.rank}", start + place)
        if depth < len(levels) and text[place] == "}" and counts != levels[depth - 1]:
            expected = levels[depth - 1]
            raise TextError(
                f"constant of shape {dims}: {expected} groups expected before this, found {counts}", start + place,
                help=f"each of its {len(levels)} dimensions has braces, as in {{ {{1,2}}, {{3,4}} }}",
            )
    raise TextError(f"constant of shape {dims}: braces do not fit the shape", start, start + len(text))


def _levels(text: str) -> list[tuple[int, int, int]]:
    """Returns for each brace its place, its depth, and for closing ones the number of groups directly inside."""
    found: list[tuple[int, int, int]] = []
    counts = [0]
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            counts[-1] += 1
            counts.append(0)
            found.append((match.start(), len(counts) - 1, 0))
        else:
            found.append((match.start(), len(counts) - 1, counts.pop()))
    return found


def _numbers(text: str, start: int, element: ElementType) -> Any:
    """Parses all numbers of a run of tokens into an array of the element type. Raises TextError at the wrong token."""
    if element.kind is Kind.COMPLEX:
        return _complex(text, start, element)
    words = text.replace(",", " ").split()
    if element.kind is Kind.PRED:
        preds = list(map(_PREDS.get, words))
        return _odd_numbers(text, start, element) if None in preds else np.array(preds, dtype=np.bool_)
    special: dict[int, str] = {}
    if _NOT_PLAIN.search(text):
        special = {n: word for n, word in enumerate(words) if word in _SPECIAL} if element.is_float else {}
        for n in special:
            words[n] = "1"
        if not special or _NOT_PLAIN.search(" ".join(words)):
            return _odd_numbers(text, start, element)
    try:
        if element.is_float:
            values = np.array(list(map(float, words)), dtype=np.float64)
        else:
            return _integers(list(map(int, words)), text, start, element)
    except ValueError:
        return _odd_numbers(text, start, element)
    result = _floats(values, text, start, element)
    for n, word in special.items():
        try:
            result[n] = _special(word, element)
        except TextError as error:
            raise _at(text, start, n, error.message) from None
    return result


@cache
def _special(word: str, element: ElementType) -> Any:
    """Returns a NaN or infinity as a scalar of the type."""
    return _one(word, element)[0]


def _integers(values: list[int], text: str, start: int, element: ElementType) -> Any:
    low = -(1 << (element.bits - 1)) if element.kind is Kind.SIGNED else 0
    high = (1 << (element.bits - (element.kind is Kind.SIGNED))) - 1
    if values and (min(values) < low or max(values) > high):
        if element.bits == 64 and min(values) >= -(1 << 63) and max(values) < 1 << 64:
            # XLA's lexer yields 64 bits, which the element type interprets.
            return np.array([v % (1 << 64) for v in values], dtype=np.uint64).astype(element.numpy)
        bad = next(n for n, v in enumerate(values) if v < low or v > high)
        raise _at(text, start, bad, f"{values[bad]} does not fit {element.name}", f"{low} .. {high}")
    wide = np.array(values, dtype=np.int64 if element.kind is Kind.SIGNED else np.uint64)
    return wide.astype(element.numpy)


def _floats(values: Any, text: str, start: int, element: ElementType) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(element.numpy)
        lost = ~np.isfinite(result.astype(np.float64))
    if lost.any():
        bad = int(np.nonzero(lost)[0][0])
        raise _at(text, start, bad, f"{_word(text, bad)[0]} does not fit {element.name}")
    return result


def _word(text: str, number: int) -> re.Match[str]:
    return next(m for n, m in enumerate(_NAN_TOKEN.finditer(text)) if n == number)


def _at(text: str, start: int, number: int, message: str, range: str = "") -> TextError:
    match = _word(text, number)
    return TextError(message, start + match.start(), start + match.end(), f"its range is {range}" if range else None)


def _odd_numbers(text: str, start: int, element: ElementType) -> Any:
    """Parses numbers token by token, as XLA's lexer does."""
    result: list[Any] = []
    place = 0
    for match in _NAN_TOKEN.finditer(text):
        between = text[place : match.start()]
        stray = re.search(r"[^\s,]", between)
        if stray:
            raise TextError(f"unexpected '{stray[0]}' in a constant", start + place + stray.start())
        try:
            result.append(_one(match[0], element))
        except TextError as error:
            raise TextError(error.message, start + match.start(), start + match.end(), error.help) from None
        place = match.end()
    stray = re.search(r"[^\s,]", text[place:])
    if stray:
        raise TextError(f"unexpected '{stray[0]}' in a constant", start + place + stray.start())
    return np.concatenate(result) if result else np.zeros(0, dtype=element.numpy)


def _one(word: str, element: ElementType) -> Any:
    """Parses one value as an array of one element."""
    if element.kind is Kind.PRED:
        if word in ("true", "false"):
            return np.array([word == "true"])
        if re.fullmatch(r"-?\d+", word):
            return np.array([word.strip("-0") != ""])
        raise TextError(f"'{word}' is not a pred value", help="true, false, 1 or 0")
    if element.is_float:
        nan = _NAN.fullmatch(word)
        if nan is not None:
            return _nan(element, nan[1] == "-", nan[2])
        if word in ("inf", "-inf"):
            return _converted(float(word), element)
        if _NUMBER.fullmatch(word):
            return _floats(np.array([float(word)]), word, 0, element)
        is_special = word.lower().strip("+-").startswith(("inf", "nan"))
        raise TextError(f"'{word}' is not a number", help="write inf, -inf or nan" if is_special else None)
    if re.fullmatch(r"-?\d+", word):
        if len(word) > 40:
            raise TextError(f"a number of {len(word)} digits does not fit {element.name}")
        return _integers([int(word)], word, 0, element)
    if word in ("true", "false"):
        return np.array([word == "true"]).astype(element.numpy)
    raise TextError(f"'{word}' is not an integer, but {element.name} is expected")


def _nan(element: ElementType, negative: bool, payload_text: str | None) -> Any:
    mantissa = MANTISSA_BITS.get(element.name)
    assert element.numpy is not None
    if mantissa is None:
        if payload_text:
            raise TextError(f"nan payload {payload_text}: nans of {element.name} have none")
        return _converted(-math.nan if negative else math.nan, element)
    payload = int(payload_text, 16) if payload_text else 1 << (mantissa - 1)
    if not 0 < payload < 1 << mantissa:
        raise TextError(f"nan payload {payload:#x} does not fit the {mantissa} bits of the mantissa of {element.name}")
    exponent = ((1 << (element.bits - 1 - mantissa)) - 1) << mantissa
    bits = exponent | payload | (int(negative) << (element.bits - 1))
    code = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}[element.bits]
    return np.frombuffer(struct.pack(code, bits), dtype=element.numpy.newbyteorder("<")).astype(element.numpy)


def _converted(number: float, element: ElementType) -> Any:
    """Returns a NaN or infinity as an array of one element, converted by numpy if the type has no such value."""
    with np.errstate(all="ignore"):
        return np.array([number]).astype(element.numpy)


def _complex(text: str, start: int, element: ElementType) -> Any:
    half = ELEMENT_TYPES["f32" if element.bits == 64 else "f64"]
    assert element.numpy is not None
    if not _PAIR.sub("", text).strip(", \t\r\n"):
        flat = ", ".join(part for pair in _PAIR.findall(text) for part in pair)
        try:
            return np.ascontiguousarray(_numbers(flat, 0, half)).view(element.numpy)
        except TextError:
            pass  # parse again, more slowly, to find the place
    found: list[Any] = []
    place = 0
    for match in _PAIR.finditer(text):
        stray = re.search(r"[^\s,]", text[place : match.start()])
        if stray:
            raise TextError("complex value '(re, im)' expected", start + place + stray.start())
        for number in (1, 2):
            found.append(_numbers(match[number], start + match.start(number), half))
        place = match.end()
    stray = re.search(r"[^\s,]", text[place:])
    if stray:
        raise TextError("complex value '(re, im)' expected", start + place + stray.start())
    if not found:
        return np.zeros(0, dtype=element.numpy)
    return np.concatenate(found).view(element.numpy)
