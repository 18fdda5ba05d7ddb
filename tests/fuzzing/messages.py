"""Serialized modules to fuzz with: damaged bytes, and damaged fields of any message."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, cast

from fuzzing.programs import corpus
from hloom import CompileError, parse
from hloom.frontends.proto.schema import TABLES
from hloom.frontends.proto.wire import Record, decode, encode, number_of

_INTEGERS = (0, 1, 2, 3, -1, 13, 34, 127, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1, 10**12, 1 << 32)
_WORDS = (
    "", "add", "tuple", "f32", "while", "async-start", "fusion", "%,=", "{}\n", "{", "}", '"', "\\", "copy-start",
    "custom-call", "é", "{replicated}", "x" * 300,
)  # fmt: skip


@cache
def serialized(text: str) -> bytes | None:
    """A program serialized, or None where it cannot be."""
    try:
        return parse(text).to_proto()
    except CompileError:
        return None


def message(rng: random.Random) -> bytes:
    """A damaged HloModuleProto: its bytes, or its fields."""
    while (data := serialized(rng.choice(corpus()))) is None:
        pass
    if rng.random() < 0.3:
        return _damaged_bytes(rng, data)
    record = tree("HloModuleProto", data)
    for _ in range(rng.randint(1, 3)):
        _damage_record(rng, record)
    return encode(record)


def _damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        new = bytes(rng.choice((0, 1, 10, 18, 127, 128, 255, rng.randrange(256))) for _ in range(rng.randrange(4)))
        data = data[:place] + new + data[place + rng.randrange(4) :] if rng.random() < 0.9 else data[:place]
    return data


def tree(kind: str, data: bytes) -> Record:
    """A message with all messages in it decoded."""
    record = decode(TABLES, kind, data)
    for name, value in record.values.items():
        known = record.table.by_name[name]
        if known.is_message:
            parts = [tree(known.kind, part) for part in (value if known.repeated else [value])]
            record.values[name] = parts if known.repeated else parts[0]
    return record


def _places(record: Record) -> list[tuple[Record, str]]:
    found = [(record, name) for name in record.values]
    for value in record.values.values():
        parts = cast("list[Any]", value) if isinstance(value, list) else [value]
        found += [place for part in parts if isinstance(part, Record) for place in _places(part)]
    return found


def _damage_record(rng: random.Random, record: Record) -> None:
    target, name = rng.choice(_places(record) or [(record, "name")])
    known, value = target.table.by_name[name], target.values.get(name)
    if rng.random() < 0.15:
        target.values.pop(name, None)
    elif rng.random() < 0.1:
        numbers = [f.name for f in target.table.by_name.values() if f.wire_type == 0 and not f.repeated]
        if numbers:
            number = rng.choice(numbers)
            target.values[number] = number_of(target.table.by_name[number].kind, rng.choice(_INTEGERS))
    elif known.repeated:
        items: list[Any] = list(value or ())
        rng.shuffle(items)
        extra: list[Any] = [number_of(known.kind, rng.choice(_INTEGERS))] if known.wire_type == 0 else items[:1]
        target.values[name] = rng.choice((items[1:], items + extra, items, extra))
    elif known.kind == "string":
        target.values[name] = rng.choice(_WORDS)
    elif known.wire_type == 0:
        target.values[name] = number_of(known.kind, rng.choice(_INTEGERS))
    elif known.kind == "bytes" and isinstance(value, bytes):
        target.values[name] = rng.choice((b"", value[:-1], value * 2, b"\xff" * 11))
