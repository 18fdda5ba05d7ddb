"""Reads and writes the wire format of protocol buffers: messages as records, by tables of fields.

A record holds the fields of one message by name. Nested messages stay bytes until `Record.sub` decodes them, so equal
shapes and shardings are recognised by their bytes. Fields that the tables do not list are preserved in `unknown`.
Nothing larger than the input is allocated.

Format: https://protobuf.dev/programming-guides/encoding (proto3; scalars are packed when repeated).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_VARINTS = frozenset(("int32", "int64", "uint32", "uint64", "bool", "enum"))
_FIXED = {"float": (FIXED32, "<f", 4), "double": (FIXED64, "<d", 8)}
_MASK = (1 << 64) - 1


class ProtoError(Exception):
    """The data is not a valid message. `place` is the byte offset in the innermost message."""

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message if place is None else f"{message} (byte {place})")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. `kind` is a scalar kind, `string`, `bytes`, or the name of a message."""

    number: int
    name: str
    kind: str
    repeated: bool

    @property
    def is_message(self) -> bool:
        return self.kind[0].isupper()

    @property
    def wire_type(self) -> int:
        if self.kind in _VARINTS:
            return VARINT
        return _FIXED[self.kind][0] if self.kind in _FIXED else BYTES


class Table:
    """The fields of one message, by number and by name."""

    def __init__(self, name: str, fields: Sequence[Field]) -> None:
        self.name = name
        self.by_number = {f.number: f for f in fields}
        self.by_name = {f.name: f for f in fields}


Tables = Mapping[str, Table]


@dataclass(slots=True)
class Record:
    """The fields present in a message. Repeated fields are lists; nested messages are bytes or records."""

    table: Table
    tables: Tables = field(repr=False)
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    unknown: bytes = b""

    def int(self, name: str) -> int:
        """Returns a number, 0 if it is absent."""
        return self.values.get(name, 0)

    def ints(self, name: str) -> list[int]:
        return self.values.get(name, [])

    def str(self, name: str) -> str:
        return self.values.get(name, "")

    def all(self, name: str) -> list[Any]:
        """Returns the values of a repeated field, messages as bytes."""
        return self.values.get(name, [])

    def sub(self, name: str) -> Record:
        """Returns the message in a field, an empty one if it is absent."""
        return decode(self.tables, self.table.by_name[name].kind, self.values.get(name, b""))

    def subs(self, name: str) -> Iterator[Record]:
        """Yields the messages in a repeated field."""
        kind = self.table.by_name[name].kind
        return (decode(self.tables, kind, data) for data in self.values.get(name, ()))

    def new(self, name: str) -> Record:
        """Returns a new record in a message field (appended if the field is repeated), or the existing one."""
        kind = self.table.by_name[name]
        made = Record(self.tables[kind.kind], self.tables)
        if kind.repeated:
            self.values.setdefault(name, []).append(made)
            return made
        return self.values.setdefault(name, made)

    def set(self, name: str, value: Any) -> None:
        """Sets a field. Zero is omitted, since proto3 does not distinguish zero from absent."""
        if value or (value == 0.0 and str(value) == "-0.0"):
            self.values[name] = value


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Reads the number at `place`; returns it and the place after it. Raises ProtoError."""
    number = shift = 0
    while True:
        if place >= len(data):
            raise ProtoError("the data ends within a number", place)
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _MASK, place
        shift += 7
        if shift > 63:
            raise ProtoError("a number of more than 64 bits", place)


def _raw_fields(data: bytes) -> Iterator[tuple[int, int, int, Any, int]]:
    """Yields start, number, wire type, value and end of each field."""
    place = 0
    while place < len(data):
        start = place
        tag, place = varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ProtoError(f"field number {number}", start)
        value: Any
        if wire_type == VARINT:
            value, place = varint(data, place)
        elif wire_type == BYTES:
            size, place = varint(data, place)
            value, place = data[place : place + size], place + size
        elif wire_type in (FIXED32, FIXED64):
            size = 4 if wire_type == FIXED32 else 8
            value, place = data[place : place + size], place + size
        else:
            raise ProtoError(f"wire type {wire_type}", start)
        if place > len(data):
            raise ProtoError("the data ends within a field", start)
        yield start, number, wire_type, value, place


def decode(tables: Tables, kind: str, data: bytes | Record) -> Record:
    """Decodes a message of this kind. Raises ProtoError for ill-typed fields; unlisted fields are preserved."""
    if isinstance(data, Record):
        return data
    table = tables[kind]
    record = Record(table, tables)
    unknown: list[bytes] = []
    for start, number, wire_type, value, end in _raw_fields(data):
        known = table.by_number.get(number)
        if known is None:
            unknown.append(data[start:end])
        elif known.repeated:
            target = record.values.setdefault(known.name, [])
            if wire_type == BYTES and known.wire_type != BYTES:
                target.extend(_packed(known, value))
            else:
                target.append(_value(known, wire_type, value, start))
        elif known.is_message and known.name in record.values:
            # A message in two pieces means their merge, which is the concatenation of their bytes.
            record.values[known.name] += _value(known, wire_type, value, start)
        else:
            record.values[known.name] = _value(known, wire_type, value, start)
    record.unknown = b"".join(unknown)
    return record


def _value(known: Field, wire_type: int, value: Any, place: int) -> Any:
    if wire_type != known.wire_type:
        raise ProtoError(f"field {known.name} has wire type {wire_type}, not {known.wire_type}", place)
    if wire_type == VARINT:
        return number_of(known.kind, value)
    if known.kind == "string":
        return value.decode("utf-8", "surrogateescape")
    if known.kind in _FIXED:
        return struct.unpack(_FIXED[known.kind][1], value)[0]
    return value


def number_of(kind: str, value: int) -> Any:
    """Interprets a varint in a field of this kind; of a number that is too large only the low bits count."""
    value &= _MASK
    if kind == "bool":
        return bool(value)
    if kind == "uint64":
        return value
    if kind == "uint32":
        return value & 0xFFFFFFFF
    if kind == "int64":
        return value - (1 << 64) if value >> 63 else value
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _packed(known: Field, data: bytes) -> list[Any]:
    if known.kind in _FIXED:
        _, code, size = _FIXED[known.kind]
        if len(data) % size:
            raise ProtoError(f"field {known.name}: {len(data)} bytes for numbers of {size}")
        return list(struct.unpack(f"<{len(data) // size}{code[1]}", data))
    found: list[Any] = []
    place = 0
    while place < len(data):
        if data[place] < 0x80:
            number, place = data[place], place + 1
        else:
            number, place = varint(data, place)
        found.append(number_of(known.kind, number))
    return found


def encode(record: Record) -> bytes:
    """Encodes a record: fields by number, then the unknown ones. Raises ProtoError for numbers that do not fit."""
    out: list[bytes] = []
    for name, value in sorted(record.values.items(), key=lambda item: record.table.by_name[item[0]].number):
        _encode_field(out, record.table.by_name[name], value)
    out.append(record.unknown)
    return b"".join(out)


def _encode_field(out: list[bytes], known: Field, value: Any) -> None:
    if known.repeated and known.wire_type != BYTES:
        packed = value if isinstance(value, bytes) else b"".join(_scalar(known, v) for v in value)
        if packed:
            out += (_tag(known.number, BYTES), to_varint(len(packed)), packed)
        return
    for item in value if known.repeated else (value,):
        if known.wire_type != BYTES:
            out += (_tag(known.number, known.wire_type), _scalar(known, item))
            continue
        if isinstance(item, Record):
            item = encode(item)
        data = item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item
        out += (_tag(known.number, BYTES), to_varint(len(data)), data)


def _scalar(known: Field, value: Any) -> bytes:
    if known.kind in _FIXED:
        return struct.pack(_FIXED[known.kind][1], value)
    if number_of(known.kind, int(value)) != value:
        raise ProtoError(f"field {known.name} is {value}, which is no {known.kind}")
    return to_varint(int(value) & _MASK)


@lru_cache(maxsize=1024)
def _tag(number: int, wire_type: int) -> bytes:
    return to_varint(number << 3 | wire_type)


def to_varint(number: int) -> bytes:
    """Encodes a number below 2^64 as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def is_fully_known(tables: Tables, kind: str, data: bytes, depth: int = 0) -> bool:
    """Returns whether the tables list every field of a message and of its nested messages. Raises ProtoError."""
    if depth > 60:
        raise ProtoError("messages nested deeper than 60 levels")
    record = decode(tables, kind, data)
    if record.unknown:
        return False
    for name, value in record.values.items():
        known = record.table.by_name[name]
        if known.is_message:
            parts = value if known.repeated else (value,)
            if not all(is_fully_known(tables, known.kind, part, depth + 1) for part in parts):
                return False
    return True
