"""Converts metadata, frontend attributes, statistics, origins and replication of instructions between text and
messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import cast

from ...ir.graph.instruction import FrontendAttributes
from ...ir.strings import BracedText, key_text, quote, unescape
from .schema import TABLES, new
from .wire import ProtoError, Record, decode

# In the order in which XLA prints them.
_METADATA = (
    "op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column", "source_end_column",
    "profile_type", "deduplicated_name", "scheduling_name", "stack_frame_id",
)  # fmt: skip
_PAYLOAD = "metadata_payload"
_PAIR = re.compile(r"([a-z_]+)=(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\{[^{}]*\}|-?\d+)[\s,]*")


@lru_cache(maxsize=65536)
def metadata_text(data: bytes, payloads: tuple[str, ...] = ()) -> str:
    """Returns an OpMetadata as the text between the braces; empty if there is none. Raises ProtoError.

    `payloads` are those of the module, which a serialized module stores separately.
    """
    record = decode(TABLES, "OpMetadata", data)
    parts: list[str] = []
    for name in _METADATA:
        value = record.values.get(name)
        if isinstance(value, str):
            parts.append(f"{name}={quote(value)}")
        elif isinstance(value, list):
            parts.append(f"{name}={{{','.join(map(str, record.ints(name)))}}}")
        elif value:
            parts.append(f"{name}={value}")
    if "payload" in record.values:
        number = record.sub("payload").int("index")
        if not 0 <= number < len(payloads):
            raise ProtoError(f"metadata with payload {number} of {len(payloads)}")
        parts.append(f"{_PAYLOAD}={quote(payloads[number])}")
    return " ".join(parts)


def metadata_record(text: str, payloads: dict[str, int] | None) -> Record:
    """Returns metadata in text as OpMetadata. Callers must not change the record, which is shared. Raises ProtoError
    for unknown fields.

    `payloads` maps the module's payloads to their numbers; a new payload is added. It is None where there is no place
    for them.
    """
    record, payload = _metadata(text)
    if payload is not None:
        if payloads is None:
            raise ProtoError(f"metadata '{text}' has no serialized form here")
        record = replace(record, values=dict(record.values))
        record.new("payload").values["index"] = payloads.setdefault(payload, len(payloads))
    return record


@lru_cache(maxsize=65536)
def _metadata(text: str) -> tuple[Record, str | None]:
    """Returns metadata without its payload, and the payload."""
    record, payload = new("OpMetadata"), None
    place = len(text) - len(text.lstrip())
    while place < len(text):
        match = _PAIR.match(text, place)
        if match is None or match[1] not in {*_METADATA, _PAYLOAD}:
            raise ProtoError(f"metadata '{text[place : place + 40]}' has no serialized form")
        if match[1] == _PAYLOAD:
            payload = unescape(match[2][1:-1])
        elif match[2][0] in "\"'":
            record.set(match[1], unescape(match[2][1:-1]))
        elif match[2][0] == "{":
            record.set(match[1], [int(n) for n in re.split(r"[\s,]+", match[2][1:-1]) if n])
        else:
            record.set(match[1], int(match[2]))
        place = match.end()
    return record, payload


@lru_cache(maxsize=65536)
def frontend_attributes_text(data: bytes) -> str:
    """Returns `{k="v"}`; empty for none."""
    entries = {e.str("key"): e.str("value") for e in decode(TABLES, "FrontendAttributes", data).subs("map")}
    pairs = ((key_text(k), quote(v)) for k, v in sorted(entries.items()))
    return "{" + ",".join(f"{k}={v}" for k, v in pairs) + "}" if entries else ""


def frontend_attributes_record(attributes: FrontendAttributes) -> Record:
    """Returns the attributes as FrontendAttributes."""
    record = new("FrontendAttributes")
    for key, value in sorted(attributes.items()):
        entry = record.new("map")
        entry.set("key", key)
        entry.set("value", value.text if isinstance(value, BracedText) else value)
    return record


# -- parameter_replication, statistics, origin


def other_texts(record: Record) -> Iterator[tuple[str, str]]:
    """Yields the further common attributes of an instruction: name and text."""
    replication = record.sub("parameter_replication").all("replicated_at_leaf_buffers")
    if replication:
        yield "parameter_replication", "{" + ",".join("true" if r else "false" for r in replication) + "}"
    statistics = record.sub("statistics_viz")
    pairs = [f"{s.str('stat_name')}={s.values.get('stat_val', 0.0):g}" for s in statistics.subs("statistics")]
    if pairs:
        index = statistics.int("stat_index_to_visualize")
        yield "statistics", "{" + ",".join([f"visualizing_index={index}", *pairs]) + "}"
    if "original_value" in record.values:
        yield "origin", _origin_text(record.sub("original_value"))


def _origin_text(origin: Record) -> str:
    if origin.int("is_synthetic_call"):
        return "{[synthetic_call]}"
    tree: dict[int, object] | str = {}
    for element in origin.subs("elements"):
        array = element.sub("original_array")
        leaf = ""
        if "original_array" in element.values:
            index = array.ints("shape_index")
            leaf = quote(array.str("instruction_name")) + (f" {{{','.join(map(str, index))}}}" if index else "")
        place = element.ints("shape_index")
        if not place:
            tree = leaf
        elif isinstance(tree, dict):
            _insert(tree, place, leaf)
    return "{" + _tree_text(tree) + "}"


def _insert(tree: dict[int, object], place: list[int], leaf: str) -> None:
    if len(place) > 60:
        raise ProtoError("an origin nests deeper than 60 levels")
    node: dict[int, object] = tree
    for index in place[:-1]:
        inner = node.setdefault(index, {})
        if not isinstance(inner, dict):
            raise ProtoError("an origin has a leaf within a leaf")
        node = cast("dict[int, object]", inner)
    node[place[-1]] = leaf


def _tree_text(tree: object) -> str:
    if isinstance(tree, dict):
        parts = cast("dict[int, object]", tree)
        return "(" + ", ".join(_tree_text(parts[index]) for index in sorted(parts)) + ")"
    return f"{{{tree}}}"


_STATISTIC = re.compile(r"([A-Za-z_][\w.\-]*)=\s*([^,}\s]+)")
_ORIGIN_TOKEN = re.compile(r"\s*(?:([(),])|\{\s*(?:\"((?:[^\"\\]|\\.)*)\"\s*(?:\{([\d,\s]*)\})?)?\s*\})")


def set_other(record: Record, name: str, text: str) -> None:
    """Writes a further common attribute into an instruction. Raises ProtoError."""
    if name == "parameter_replication":
        record.new(name).set("replicated_at_leaf_buffers", [w == "true" for w in re.findall(r"true|false", text)])
    elif name == "statistics":
        made = record.new("statistics_viz")
        for key, value in _STATISTIC.findall(text):
            if key == "visualizing_index":
                made.set("stat_index_to_visualize", int(value))
            else:
                entry = made.new("statistics")
                entry.set("stat_name", key)
                entry.set("stat_val", float(value))
    else:
        _set_origin(record.new("original_value"), text)


def _set_origin(origin: Record, text: str) -> None:
    inner = text[1:-1].strip()
    if inner == "[synthetic_call]":
        origin.set("is_synthetic_call", True)
        return
    place, index = 0, list[int]()
    while place < len(inner):
        match = _ORIGIN_TOKEN.match(inner, place)
        if match is None:
            raise ProtoError(f"origin {text} has no serialized form")
        place = match.end()
        if match[1] == "(":
            index.append(0)
        elif match[1] == "," and index:
            index[-1] += 1
        elif match[1] == ")" and index:
            index.pop()
        elif not match[1]:
            _add_element(origin, index, match)


def _add_element(origin: Record, index: list[int], match: re.Match[str]) -> None:
    element = origin.new("elements")
    element.set("shape_index", list(index))
    if match[2] is not None:
        array = element.new("original_array")
        array.set("instruction_name", unescape(match[2]))
        array.set("shape_index", [int(n) for n in (match[3] or "").split(",") if n.strip()])
