"""Parses attribute values by the type of the attribute's field.

One table, `codec(type)`, serves all ops; no op parses anything itself. A codec is a pure function of the text and
raises `TextError`. Called computations and literals with a shape are parsed elsewhere, since they need the module or a
shape.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from itertools import repeat
from typing import Any, cast

import numpy as np

from ...ir.graph.attributes import (
    Callee,
    DimLabels,
    Identifier,
    PadDim,
    PaddingConfig,
    Pairs,
    SliceDim,
    Window,
    WindowDim,
)
from ...ir.sharding.replica_groups import ReplicaGroups
from ...ir.strings import BracedText, unescape
from ...ir.types.shape import Shape
from .errors import TextError, did_you_mean
from .grammar import read
from .replica_groups import parse_replica_groups
from .scan import bracket_end, raw_end, split_list
from .shapes import parse_shape

Codec = Callable[[str], Any]

_INT = re.compile(r"-?\d{1,20}")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d+|(?<=-)\.\d+)(?:[eE][+-]?\d+)?|-?inf|-?nan")
_WORD = re.compile(r"[^\s{}\"]+")
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.DOTALL)
_PLAIN_DIMS = re.compile(r"\{[0-9,]*\}")
_PLAIN_PAIRS = re.compile(r"\{\{\d{1,18},\d{1,18}\}(?:,\{\d{1,18},\d{1,18}\})*+\}")
_NUMBER = re.compile(r"\d+")
_FLAT = re.compile(r"\{[\d,\s]*\d[,\s]*\}")
_SLICE = re.compile(r"\[\s*(\d{1,20})\s*:\s*(\d{1,20})\s*(?::\s*(-?\d{1,20})\s*)?\]")
_PAD = re.compile(r"(-?\d{1,20})_(-?\d{1,20})(?:_(\d{1,20}))?")


@cache
def codec(kind: Any) -> Codec:
    """Returns the parser of values of a field type. Raises TypeError for a type that no attribute may have."""
    if kind in _CODECS:
        return _CODECS[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_codec(kind)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return _list_codec(codec(parts[0]))
        return _fixed_codec([codec(part) for part in parts])
    if set(parts) == {str, BracedText}:
        return lambda text: BracedText(text) if text.startswith("{") else _string(text)
    parse: Any = getattr(cast("Any", kind), "parse", None)
    if parse is not None:
        return _own_codec(cast("Codec", parse))
    raise TypeError(f"no codec for attribute type {kind}")


def example(kind: Any) -> str:
    """Returns a value of a field type as text, or `..` where none says much."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    return _EXAMPLES.get(kind, "..")


def _integer(text: str) -> int:
    if not _INT.fullmatch(text):
        inner = text.strip("{} ")
        help = f"write {inner}, without braces" if _INT.fullmatch(inner) and inner != text else None
        raise TextError(f"integer expected, found '{text}'", 0, len(text), help)
    if not -(2**63) <= int(text) < 2**64:
        raise TextError(f"{text} does not fit 64 bits", 0, len(text))
    return int(text)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise TextError(f"true or false expected, found '{text}'", 0, len(text))
    return text == "true"


def _float(text: str) -> float:
    """Parses a float. Attributes are f32; the result is the shortest float that rounds to the same f32."""
    if not _FLOAT.fullmatch(text):
        raise TextError(f"number expected, found '{text}'", 0, len(text))
    with np.errstate(over="ignore"):
        number = np.float32(text)
    if np.isinf(number):
        raise TextError(f"{text} does not fit f32", 0, len(text))
    return float(str(number))


def _string(text: str) -> str:
    if not _STRING.fullmatch(text):
        raise TextError("string in quotes expected", 0, len(text), f'write "{text}"' if _WORD.fullmatch(text) else None)
    return unescape(text[1:-1])


def _identifier(text: str) -> Identifier:
    if not _WORD.fullmatch(text):
        raise TextError(f"word expected, found '{text}'", 0, len(text))
    return Identifier(text)


def string_or_raw(text: str) -> str | BracedText:
    """Returns the value of a quoted string: one text in braces is verbatim with quotes or without, as XLA has it."""
    found = unescape(text[1:-1])
    try:
        return BracedText(found) if found.startswith("{") and raw_end(found, 0) == len(found) else found
    except TextError:
        return found


def _raw(text: str) -> BracedText:
    if not text.startswith("{"):
        raise TextError("text in braces expected", 0, len(text))
    return BracedText(text)


def _dims(text: str) -> tuple[int, ...]:
    if text == "{}":
        return ()
    if _PLAIN_DIMS.fullmatch(text):
        try:
            return tuple(map(int, text[1:-1].split(",")))
        except ValueError:
            pass
    return _list_codec(_integer)(text)


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    if _FLAT.fullmatch(text):
        raise TextError(f"list of pairs expected, found '{text}'", 0, len(text), "such as {{0,1},{1,2}}")
    if not _PLAIN_PAIRS.fullmatch(text):
        return _list_codec(_fixed_codec([_integer, _integer]))(text)
    numbers = map(int, _NUMBER.findall(text))
    return tuple(zip(numbers, numbers, strict=True))


def _enum_codec(kind: type[Enum]) -> Codec:
    members = {str(member.value): member for member in kind}
    lower = {text.lower(): member for text, member in members.items()}

    def decode(text: str) -> Any:
        if text not in members and text.lower() in lower:
            return lower[text.lower()]  # XLA ignores the case of most of them
        if text not in members:
            help = did_you_mean(text, members, "one of " + ", ".join(members))
            raise TextError(f"'{text}' is not possible here", 0, len(text), help)
        return members[text]

    return decode


def _entries(text: str) -> list[tuple[int, int]]:
    if not text.startswith("{"):
        help = f"write {{{text}}}" if _INT.fullmatch(text) else None
        raise TextError(f"list in braces expected, found '{text}'", 0, len(text), help)
    return split_list(text, 1, bracket_end(text, 0) - 1)


def _decoded(text: str, extents: list[tuple[int, int]], codecs: Iterable[Codec]) -> tuple[Any, ...]:
    """Parses the entries of a list, each by its codec; an entry's error is at its place in the list."""
    result: list[Any] = []
    for (start, end), codec in zip(extents, codecs, strict=False):
        try:
            result.append(codec(text[start:end]))
        except TextError as error:
            raise error.shifted(start) from None
    return tuple(result)


def _list_codec(element: Codec) -> Codec:
    return lambda text: _decoded(text, _entries(text), repeat(element))


def _fixed_codec(elements: list[Codec]) -> Codec:
    def decode(text: str) -> Any:
        extents = _entries(text)
        if len(extents) != len(elements):
            raise TextError(f"{len(elements)} entries expected, found {len(extents)}", 0, len(text))
        return _decoded(text, extents, elements)

    return decode


def _own_codec(parse: Codec) -> Codec:
    """Returns the codec of a value type with its own static `parse`, which raises ValueError."""

    def decode(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise TextError(str(error), 0, len(text)) from None

    return decode


def _slice_dim(text: str) -> SliceDim:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise TextError(f"[start:limit] or [start:limit:stride] expected, found '{text}'", 0, max(1, len(text)))
    return SliceDim(int(match[1]), int(match[2]), int(match[3] or 1))


def _padding(text: str) -> PaddingConfig:
    dims: list[PadDim] = []
    place = 0
    for part in text.split("x") if text else ():
        match = _PAD.fullmatch(part)
        if match is None:
            message = f"padding: low_high or low_high_interior expected, found '{part}'"
            raise TextError(message, place, place + max(1, len(part)), "such as 1_1x0_2 for two dimensions")
        dims.append(PadDim(int(match[1]), int(match[2]), int(match[3] or 0)))
        place += len(part) + 1
    return PaddingConfig(tuple(dims))


_WINDOW_WORDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def _window(text: str) -> Window:
    found: dict[str, tuple[Any, ...]] = {}
    for part in read("window", "window", text).children:
        word: Any = part.children[0]
        value: Any = part.children[1]
        if str(word) not in _WINDOW_WORDS:
            help = did_you_mean(word, _WINDOW_WORDS, "one of " + ", ".join(_WINDOW_WORDS))
            raise TextError(f"window: unknown part '{word}'", word.start_pos, word.end_pos, help)
        if str(word) in found:
            raise TextError(f"window: {word} is given twice", word.start_pos, word.end_pos)
        numbers = _window_numbers(str(word), value)
        first = next(iter(found.values()), numbers)
        if len(numbers) != len(first):
            message = f"window: {len(numbers)} dimensions here, {len(first)} before"
            raise TextError(message, value.start_pos, value.end_pos)
        found[str(word)] = numbers
    if not found:
        return Window()
    if "size" not in found:
        raise TextError("window: size= expected", 0, len(text))
    rank = len(found["size"])
    dims = [{k: v for values in found.values() for k, v in values[i]} for i in range(rank)]
    return Window(tuple(WindowDim(**dim) for dim in dims))


def _window_numbers(word: str, value: Any) -> tuple[Any, ...]:
    """Returns for each dimension the (field, value) pairs that a part of a window sets."""
    result: list[Any] = []
    for part in str(value).split("x"):
        pair = part.split("_")
        if len(pair) != (2 if word == "pad" else 1):
            kind = "low_high per dimension" if word == "pad" else "one number per dimension"
            help = f"such as {word}={'1_1x0_2' if word == 'pad' else '3x3'} for two dimensions"
            raise TextError(f"window: {word} takes {kind}", value.start_pos, value.end_pos, help)
        if word == "pad":
            result.append((("low", int(pair[0])), ("high", int(pair[1]))))
        elif word == "rhs_reversal":
            result.append((("reversal", pair[0] != "0"),))
        else:
            number = int(pair[0])
            if number < (0 if word == "size" else 1):
                raise TextError(f"window: {word} {number} is too small", value.start_pos, value.end_pos)
            result.append(((word, number),))
    return tuple(result)


def _shape(text: str) -> Shape:
    return parse_shape(text)


_EXAMPLES: dict[Any, str] = {
    int: "0", str: '"name"', tuple[int, ...]: "{0,1}", tuple[SliceDim, ...]: "{[0:4],[0:8:2]}", Pairs: "{{0,1},{1,2}}",
    PaddingConfig: "1_1x0_2", Window: "{size=3x3 pad=1_1x1_1}", Callee: "COMPUTATION",
    DimLabels: "b01f_01io->b01f",
}  # fmt: skip

_CODECS: dict[Any, Codec] = {
    int: _integer,
    bool: _boolean,
    float: _float,
    str: _string,
    Identifier: _identifier,
    BracedText: _raw,
    Shape: _shape,
    tuple[int, ...]: _dims,
    Pairs: _pairs,
    SliceDim: _slice_dim,
    PaddingConfig: _padding,
    Window: _window,
    ReplicaGroups: parse_replica_groups,
}
