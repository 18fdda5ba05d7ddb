"""Parses the layout of arrays that are kept inside of others (`ir/graph/flat_layout` describes the text)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ...ir.graph.flat_layout import FlatLayout, FlatMember, Member
from ...ir.sharding.sharding import Sharding
from ...ir.strings import unescape
from .errors import TextError
from .scan import skip_space
from .shapes import parse_shape
from .shardings import parse_sharding

T = TypeVar("T")
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
