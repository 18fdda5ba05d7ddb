"""Reads the header of a module, `HloModule name, attribute=value, ..`, by a table of its attributes.

One of them is the layout of arrays that are kept inside of others (`ir/graph/flat_layout` describes the text).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ...ir.graph.flat_layout import FlatLayout, FlatMember, Member
from ...ir.graph.instruction import NO_FRONTEND_ATTRIBUTES
from ...ir.graph.module import EntryLayout, Module, Stage
from ...ir.sharding.sharding import Sharding
from ...ir.strings import BracedText, unescape
from ...ir.tools.printer import FLAT_LAYOUT_KEY, GLOBAL_LAYOUT_KEY, STAGE_KEY
from .attribute_reader import parse_frontend_attributes
from .cursor import Cursor
from .errors import TextError, did_you_mean
from .scan import IDENT, blank_comments, skip_space, value_end
from .shapes import parse_entry_layout, parse_shape
from .shardings import parse_meshes, parse_sharding

MESHES_KEY = "xla.sdy.meshes"
T = TypeVar("T")
LARGEST_COUNT = 2**31 - 1

_ATTRIBUTE = re.compile(rf"({IDENT})=")
_INDEX = r"\{\s*(?:\d+\s*(?:,\s*\d+\s*)*)?\}"
_ALIAS = re.compile(
    rf"\{{\s*(?:{_INDEX}\s*:\s*\(\s*\d+\s*(?:,\s*{_INDEX}\s*(?:,\s*(?:may|must)-alias\s*)?)?\)\s*,?\s*)*\}}"
)
_DONOR = re.compile(rf"\{{\s*(?:\(\s*\d+\s*,\s*{_INDEX}\s*\)\s*,?\s*)*\}}")


def read_header(cursor: Cursor, module: Module) -> None:
    """Reads everything up to the first table or computation. Raises Syntax."""
    module.name, _ = cursor.name("module name")
    seen: set[str] = set()
    while cursor.accept_comma():
        match = _ATTRIBUTE.match(cursor.text, cursor.skip())
        if match is None:
            cursor.unexpected("module attribute after ','")
        name = match[1]
        if name not in _SETTERS:
            help = did_you_mean(name, _SETTERS, "a module may have " + ", ".join(_SETTERS))
            cursor.error(f"unknown module attribute '{name}'", match.start(), match.end() - 1, help)
        if name in seen:
            cursor.error(f"module attribute '{name}' is given twice", match.start(), match.end() - 1)
        seen.add(name)
        _value(cursor, module, name, match.end())


def _value(cursor: Cursor, module: Module, name: str, start: int) -> None:
    text = cursor.text
    raw = name in ("frontend_attributes", "origin_recovery_table")
    try:
        start = skip_space(text, start)
        end = value_end(text, start, raw)
    except TextError as error:
        cursor.relay(error, 0)
    value = text[start:end] if raw else blank_comments(text[start:end])
    try:
        _SETTERS[name](module, value)
    except TextError as error:
        cursor.relay(error, start)
    except ValueError as error:
        cursor.error(f"{name}: {error}", start, end)
    cursor.place = end


def _fail(text: str, message: str, help: str | None = None) -> NoReturn:
    raise TextError(message, 0, len(text), help)


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        _fail(text, f"true or false expected, found '{text}'")
    return text == "true"


def _bools(text: str) -> tuple[bool, ...]:
    if not text.startswith("{"):
        return (_bool(text),)
    return tuple(_bool(part.strip()) for part in text[1:-1].split(",") if part.strip())


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or not 1 <= int(text) <= LARGEST_COUNT:
        _fail(text, f"positive number expected, found '{text}'")
    return int(text)


def _alias(text: str) -> str:
    if not _ALIAS.fullmatch(text):
        _fail(text, "input_output_alias cannot be read", "for example { {0}: (0, {}, may-alias) }")
    return text


def _donor(text: str) -> str:
    if not _DONOR.fullmatch(text):
        _fail(text, "buffer_donor cannot be read", "for example { (1, {}) }")
    return text


def _entry_layout(text: str) -> EntryLayout:
    if not text.startswith("{"):
        _fail(text, "entry layout: '{' expected")
    return parse_entry_layout(text)


def _recovery_table(text: str) -> str:
    if not text.startswith("{"):
        _fail(text, "origin_recovery_table: text in braces expected")
    return text


def _set_frontend_attributes(module: Module, text: str) -> None:
    found = dict(parse_frontend_attributes(text))
    meshes = found.get(MESHES_KEY)
    if meshes is not None:
        value = meshes.text if isinstance(meshes, BracedText) else meshes
        try:
            module.meshes = dict(parse_meshes(value))
        except TextError as error:
            # Offsets inside a quoted string would count its escapes, so the whole value is marked.
            start = text.find(value)
            if start < 0:
                _fail(text, error.message, error.help)
            raise error.shifted(start) from None
    stage = found.pop(STAGE_KEY, None)
    if stage is not None:
        stages = {s.value: s for s in Stage}
        if not isinstance(stage, str) or stage not in stages:
            _fail(text, f"{STAGE_KEY} must be one of {', '.join(stages)}")
        module.stage = stages[stage]
    layout = found.pop(GLOBAL_LAYOUT_KEY, None)
    flat = found.pop(FLAT_LAYOUT_KEY, None) if module.stage is not Stage.GLOBAL else None
    if isinstance(layout, BracedText):
        module.global_layout = _inside(text, layout, _entry_layout)
    if isinstance(flat, BracedText):
        module.flat_layout = _inside(text, flat, parse_flat_layout)
    module.frontend_attributes = found or NO_FRONTEND_ATTRIBUTES


def _inside(text: str, value: BracedText, parse: Callable[[str], T]) -> T:
    """Parses a value inside of a text, in whose places it reports errors."""
    try:
        return parse(value.text)
    except TextError as error:
        raise error.shifted(text.index(value.text)) from None


def _sets(field: str, read: Callable[[str], object]) -> Callable[[Module, str], None]:
    """Returns a function that sets a field of a module to the value of a text."""
    return lambda module, text: setattr(module, field, read(text))


_SETTERS: dict[str, Callable[[Module, str], None]] = {
    "is_scheduled": _sets("is_scheduled", _bool),
    "input_output_alias": _sets("input_output_alias", _alias),
    "buffer_donor": _sets("buffer_donor", _donor),
    "alias_passthrough_params": _sets("alias_passthrough_params", _bool),
    "entry_computation_layout": _sets("entry_layout", _entry_layout),
    "allow_spmd_sharding_propagation_to_parameters": _sets("allow_propagation_to_parameters", _bools),
    "allow_spmd_sharding_propagation_to_output": _sets("allow_propagation_to_output", _bools),
    "replica_count": _sets("replica_count", _count),
    "num_partitions": _sets("num_partitions", _count),
    "frontend_attributes": _set_frontend_attributes,
    "origin_recovery_table": _sets("origin_recovery_table", _recovery_table),
}


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PLACE = re.compile(
    rf"(?:(?P<name>[\w.\-]+)=(?P<of>\d+)\[(?P<start>\d+)\] (?P<shape>\S+) (?P<whole>\S+) (?P<sharding>\{{.*?\}})"
    rf"(?: (?P<path>{_QUOTED}))?|(?P<own>\d+))\s*(?=[;)])"
)


def parse_flat_layout(text: str) -> FlatLayout:
    """Parses `{(place; place)->(place)}`. Raises TextError."""
    parameters, place = _places(text, 1)
    if not text.startswith("->", place):
        raise TextError("flat layout: '->' expected", place)
    results, place = _places(text, place + 2)
    if place != len(text) - 1:
        raise TextError("flat layout: '}' expected", place)
    return FlatLayout(parameters, results)


def _places(text: str, start: int) -> tuple[tuple[FlatMember, ...], int]:
    """Reads places in parentheses; returns them, and the place after them."""
    if not text.startswith("(", start):
        raise TextError("flat layout: '(' expected", start)
    found: list[FlatMember] = []
    place = skip_space(text, start + 1)
    while not text.startswith(")", place):
        match = _PLACE.match(text, place)
        if match is None:
            raise TextError("flat layout: a number or a member of an array expected", place,
                            help="for example w=0[32] f32[4,8] f32[8,8] {devices=[2,1]<=[2]}")
        found.append(_place(match))
        place = match.end()
        place = skip_space(text, place + text.startswith(";", place))
    return tuple(found), place + 1


def _place(match: re.Match[str]) -> FlatMember:
    if match["own"]:
        return FlatMember(int(match["own"]))
    sharding = _read(match, "sharding", parse_sharding) if match["sharding"] != "{}" else None
    if sharding is not None and not isinstance(sharding, Sharding):
        raise TextError("flat layout: the sharding of an array expected", match.start("sharding"))
    shape, whole = (_read(match, key, parse_shape) for key in ("shape", "whole"))
    path = unescape(match["path"][1:-1]) if match["path"] else ""
    return FlatMember(int(match["of"]), Member(match["name"], int(match["start"]), shape, whole, sharding, path))


def _read(match: re.Match[str], key: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(match[key])
    except TextError as error:
        raise error.shifted(match.start(key)) from None
