"""Parses shapes and layouts: plain array shapes by a regular expression, the others by the grammar, all cached."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...ir.graph.module import EntryLayout
from ...ir.types.element_type import ELEMENT_TYPES, ElementType
from ...ir.types.shape import UNBOUNDED, Layout, Shape, array, tuple_shape
from .errors import DEPTH_LIMIT, TextError
from .foreign_names import type_help
from .grammar import read
from .scan import COMMENT, blank_comments, bracket_end, skip_space

LARGEST_SIZE = 2**63 - 1
LARGEST_RANK = 1024  # XLA has no limit; the evaluator has numpy's, 64
LONGEST_NUMBER = 19

_PLAIN = re.compile(r"([a-z][a-z0-9]*)\[((?:\d+(?:,\d+)*)?)\](?:\{(\d+(?:,\d+)*)\})?")
PLAIN_SHAPE = r"[a-z][a-z0-9]*+\[[0-9,]*+\](?:\{[0-9,]*+\})?+"
_PLAIN_SHAPES = re.compile(rf"(?<![a-z0-9]){PLAIN_SHAPE}")  # a long name is tried once, not from each letter
_PLAIN_TUPLE = re.compile(rf"\({PLAIN_SHAPE}(?:,\s*+(?:/\*index=[0-9]++\*/)?+{PLAIN_SHAPE})*+\)")
_SPACE = rf"(?:\s|{COMMENT})*"
_ARRAY_HEAD = re.compile(rf"([A-Za-z][A-Za-z0-9]*){_SPACE}\[(?:{COMMENT}|[^\]\n])*\]?")
_NO_TAIL = re.compile(r"L\(-\d+\)|L\(0+\)")
_ZEROS = re.compile(r"(?<![a-z\d])0+(?=\d)")  # before other digits of a number
_ABSENT = re.compile(r"[SEM]\(0+\)|L\(0*1\)")  # parts of layouts that state defaults
_LAYOUT_FOLLOWS = re.compile(rf"{_SPACE}\{{{_SPACE}(?:-?\d|[:}}])")


@lru_cache(maxsize=65536)
def parse_shape(text: str) -> Shape:
    """Parses a shape, layout included. Raises TextError."""
    end = skip_space(text, 0)
    shape, end = read_shape(text, end)
    end = skip_space(text, end)
    if end < len(text):
        raise TextError(f"unexpected '{text[end]}' after the shape {shape}", end)
    return shape


def is_shape(text: str) -> bool:
    """Returns whether `parse_shape` takes the text."""
    try:
        parse_shape(text)
    except (TextError, ValueError):
        return False
    return True


def read_shape(text: str, start: int) -> tuple[Shape, int]:
    """Parses the shape at `start`; returns it and where it ends. Raises TextError."""
    plain = _PLAIN_TUPLE.match(text, start)
    if plain is not None and (shape := _plain_tuple(plain[0])) is not None:
        return shape, plain.end()
    end = shape_end(text, start)
    try:
        return _shape(text[start:end]), end
    except TextError as error:
        raise error.shifted(start) from None


def shape_end(text: str, start: int) -> int:
    """Returns the place after the shape at `start`. A `{` belongs to the shape only if a number, `:` or `}` follows."""
    if text.startswith("b(", start):
        return bracket_end(text, start + 1)
    if text.startswith("(", start):
        return bracket_end(text, start)
    head = _ARRAY_HEAD.match(text, start)
    if head is not None and text[head.end() - 1] != "]":
        raise TextError("'[' is not closed", text.index("[", start))
    if head is None:
        raise TextError("shape expected", start, help="for example f32[8,16] or (f32[], s32[4])")
    end = head.end()
    layout = _LAYOUT_FOLLOWS.match(text, end)
    if layout is None or text.startswith("}", layout.end() - 1):
        return end
    return bracket_end(text, skip_space(text, end))


def parse_entry_layout(text: str) -> EntryLayout:
    """Parses `{(f32[2]{0}, s32[])->f32[2]{0}}`. Raises TextError."""
    place = skip_space(text, 1)
    parameters, place = read_shape(text, place)
    if not parameters.is_tuple:
        raise TextError("entry layout: parameters in parentheses expected", skip_space(text, 1))
    place = skip_space(text, place)
    if not text.startswith("->", place):
        raise TextError("entry layout: '->' expected", place)
    result, place = read_shape(text, skip_space(text, place + 2))
    place = skip_space(text, place)
    if place != len(text) - 1:
        raise TextError("entry layout: '}' expected", place)
    return EntryLayout(parameters.elements, result)


@lru_cache(maxsize=65536)
def _shape(text: str) -> Shape:
    match = _PLAIN.fullmatch(text)
    if match is not None:
        return _plain(match)
    if text[0] == "(" or text.startswith("b("):
        return _nested(blank_comments(text))
    return _array(blank_comments(text))


def plain_shapes(text: str) -> list[str]:
    """Returns the texts of plain arrays (`PLAIN_SHAPE`) in a text."""
    return _PLAIN_SHAPES.findall(text)


@lru_cache(maxsize=256)
def _plain_tuple(text: str) -> Shape | None:
    """Parses a tuple of plain arrays, of which most are equal to others; None if one is wrong."""
    words = plain_shapes(text)
    try:
        shapes = {word: _shape(word) for word in set(words)}
    except TextError:
        return None
    return tuple_shape(tuple(map(shapes.__getitem__, words)))


def element_type(name: str, start: int = 0) -> ElementType:
    """Returns the element type of this name. Raises TextError with a suggestion."""
    found = ELEMENT_TYPES.get(name)
    if found is None:
        raise TextError(f"unknown element type '{name}'", start, start + len(name), type_help(name))
    return found


def _plain(match: re.Match[str]) -> Shape:
    element = element_type(match[1])
    if not element.is_array and match[2]:
        raise _no_array(element, match.start(2))
    if len(match[2]) > 18:
        _check_sizes(match[2], match.start(2))
    dims = tuple(map(int, match[2].split(","))) if match[2] else ()
    if match[3] is None:
        return array(element, dims)
    if len(match[3]) > 5 * LARGEST_RANK:
        raise TextError(f"layout must have {len(dims)} dimensions", match.start(3) - 1, match.end(3) + 1)
    order = tuple(map(int, match[3].split(",")))
    _check_layout(order, dims, match.start(3) - 1, match.end(3) + 1)
    return Shape(element, dims, Layout(order))


def _no_array(element: ElementType, place: int) -> TextError:
    return TextError(f"{element.name} has no dimensions", place, help=f"write {element.name}[]")


def _check_sizes(sizes: str, start: int) -> None:
    """Checks the digits of a plain shape's sizes before conversion, because Python refuses numbers of thousands of
    digits.
    """
    words = sizes.split(",")
    _check_rank(len(words), start)
    place = start
    for word in words:
        if len(word) > LONGEST_NUMBER or int(word) > LARGEST_SIZE:
            raise TextError("dimension does not fit 64 bits", place, place + len(word))
        place += len(word) + 1


def _check_rank(rank: int, start: int) -> None:
    if rank > LARGEST_RANK:
        raise TextError(f"shape has {rank} dimensions, at most {LARGEST_RANK} are possible", start)


def _check_size(size: int, start: int, end: int) -> None:
    if size > LARGEST_SIZE:
        raise TextError("dimension does not fit 64 bits", start, end)
    if size < 0:
        raise TextError(f"dimension is negative: {size}", start, end)


def _check_layout(order: tuple[int, ...], dims: tuple[int, ...], start: int, end: int) -> None:
    rows = f"{{{','.join(map(str, reversed(range(len(dims)))))}}} for rows" if len(dims) < 10 else "minor ones first"
    help = f"a layout lists each dimension once, {rows}"
    if len(order) != len(dims):
        raise TextError(f"layout has {len(order)} dimensions, the shape has {len(dims)}", start, end, help)
    wrong = next((d for d in order if not 0 <= d < len(dims)), None)
    if wrong is not None:
        raise TextError(f"layout names dimension {wrong}, the shape has rank {len(dims)}", start, end, help)
    if len(set(order)) < len(order):
        raise TextError(f"layout {{{','.join(map(str, order))}}} names a dimension twice", start, end, help)


def _nested(text: str) -> Shape:
    """Parses a tuple or buffer shape with a stack instead of recursion. The depth is limited nevertheless, for later
    readers.
    """
    stack: list[tuple[bool, list[Shape]]] = []
    place, comma = 0, True
    while True:
        place = skip_space(text, place)
        is_buffer = text.startswith("b(", place)
        if is_buffer or text.startswith("(", place):
            stack.append((is_buffer, []))
            if len(stack) > DEPTH_LIMIT:
                raise TextError(f"shape nested deeper than {DEPTH_LIMIT} levels", place)
            place += 2 if is_buffer else 1
            comma = True
            after = skip_space(text, place)
            if not text.startswith(")", after):
                continue
            place = after
        else:
            end = shape_end(text, place)
            try:
                shape = _shape(text[place:end])
            except TextError as error:
                raise error.shifted(place) from None
            stack[-1][1].append(shape)
            place = skip_space(text, end)
        while text.startswith(")", place):
            shape = _closed(*stack.pop(), place)
            if not stack:
                return shape
            stack[-1][1].append(shape)
            place = skip_space(text, place + 1)
        comma = text.startswith(",", place)
        if not comma:
            raise TextError("tuple shape: ',' or ')' expected", place)
        place += 1


def _closed(is_buffer: bool, elements: list[Shape], place: int) -> Shape:
    if not is_buffer:
        return tuple_shape(tuple(elements))
    if len(elements) != 1 or elements[0].is_tuple:
        raise TextError("b(..) holds one array shape", place)
    inner = elements[0]
    return Shape(inner.element, inner.dims, inner.layout, (), inner.dynamic, is_buffer=True)


def _array(text: str) -> Shape:
    """Parses an array shape with dynamic sizes, spaces, or an elaborate layout."""
    if (head := _ARRAY_HEAD.match(text)) and head[1].lower() != head[1]:
        element_type(head[1])  # all are of small letters
    tree = read("array_shape", "shape", text)
    name, *sizes, layout = tree.children
    element = element_type(str(name), name.start_pos)
    dims: list[int] = []
    dynamic: list[bool] = []
    _check_rank(len(sizes), name.end_pos)
    for size in sizes:
        if size is None:
            continue
        if size.children and len(size.children[0]) > LONGEST_NUMBER:
            raise TextError("dimension does not fit 64 bits", size.children[0].start_pos, size.children[0].end_pos)
        number = int(size.children[0]) if size.children else UNBOUNDED
        if size.children:
            token = size.children[0]
            _check_size(number, token.start_pos, token.end_pos)
        dims.append(number)
        dynamic.append(size.data == "bounded_size")
    if dims and not element.is_array:
        raise _no_array(element, name.start_pos)
    marks = tuple(dynamic) if any(dynamic) else ()
    return Shape(element, tuple(dims), _layout(layout, tuple(dims)) if layout is not None else None, (), marks)


def _layout(tree: Any, dims: tuple[int, ...]) -> Layout | None:
    order_token: Any = tree.children[0]
    tail: Any = tree.children[1]
    order: tuple[int, ...] | None = None
    if order_token is not None:
        order = ints(order_token)
        _check_layout(order, dims, order_token.start_pos, order_token.end_pos)
    elif dims:
        raise TextError(f"layout has 0 dimensions, the shape has {len(dims)}", tree.meta.start_pos)
    tiles: tuple[tuple[int | None, ...], ...] = ()
    rest = ""
    for part in tail.children if tail is not None else ():
        if hasattr(part, "data"):
            tiles = tuple(tuple(_tile_dim(d) for d in t.children if d is not None) for t in part.children)
        elif part is not None and part.type != "DIM_TYPES":
            text = _physical(part) if part.type == "PHYSICAL" else _ZEROS.sub("", "".join(str(part).split()))
            if part.type in ("INDEX_TYPE", "POINTER_TYPE") and text[2:-1] not in ELEMENT_TYPES:
                raise TextError(f"layout: unknown element type '{text[2:-1]}'", part.start_pos)
            if _NO_TAIL.fullmatch(text):
                raise TextError(f"layout: {text}: the end is padded to a multiple of at least 1", part.start_pos)
            rest += "" if _ABSENT.fullmatch(text) else text
    layout = Layout(order, tiles, rest)
    return None if layout == Layout() else layout


def _physical(token: Any) -> str:
    """Parses `P(..)`, the physical shape in memory."""
    text = str(token)
    start = text.index("(") + 1
    try:
        return f"P({parse_shape(text[start:-1])})"
    except TextError as error:
        raise error.shifted(token.start_pos + start) from None


def in_default_order(shape: Shape) -> Shape:
    """Returns the shape with its dimensions major to minor; the rest of its layouts stays."""
    if shape.is_tuple:
        return tuple_shape(tuple(map(in_default_order, shape.elements)))
    if shape.layout is None or shape.layout.minor_to_major is None:
        return shape
    return replace(shape, layout=replace(shape.layout, minor_to_major=tuple(reversed(range(shape.rank)))))


def _tile_dim(tree: Any) -> int | None:
    if not tree.children:
        return None
    token: Any = tree.children[0]
    if int(token) < 0:
        raise TextError(f"layout: a tile has a side of {token}", token.start_pos, token.end_pos)
    return int(token)


def ints(token: Any) -> tuple[int, ...]:
    """Returns the numbers of an INTS token."""
    return tuple(int(n) for n in str(token).split(",") if n.strip())
