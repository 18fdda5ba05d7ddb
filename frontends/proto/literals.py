"""Converts literals between LiteralProto and arrays.

The values of one type lie in one field, in the order of the memory layout: little-endian bytes, or packed numbers.
numpy packs and unpacks varints, so a large constant costs no Python per element. Sizes are compared with the available
bytes before an array is allocated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...ir.types.element_type import ElementType, Kind
from ...ir.types.literal import Array, Literal
from ...ir.types.shape import UNBOUNDED, Shape, tuple_shape
from .schema import new
from .shapes import DEPTH_LIMIT, shape_record
from .wire import ProtoError, Record

_VARINTS = {"pred": "preds", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s"}


def _field(element: ElementType) -> str:
    return _VARINTS.get(element.name, element.name + "s")


def read_literal(record: Record, shape: Shape, depth: int = 0) -> Literal:
    """Reads the literal of this shape, in the order of the shape's layout. Raises ProtoError."""
    if depth > DEPTH_LIMIT:
        raise ProtoError(f"tuple literals nested deeper than {DEPTH_LIMIT} levels")
    if shape.is_tuple:
        parts = record.all("tuple_literals")
        if len(parts) != len(shape.elements):
            raise ProtoError(f"literal of shape {shape.without_layout()} has {len(parts)} elements")
        pairs = zip(record.subs("tuple_literals"), shape.elements, strict=True)
        return Literal(None, tuple(read_literal(part, element, depth + 1) for part, element in pairs))
    element, name = shape.element, _field(shape.element)
    if element.numpy is None or name not in record.table.by_name or UNBOUNDED in shape.dims:
        raise ProtoError(f"a literal of shape {shape.without_layout()} cannot be held")
    count = math.prod(shape.dims)
    flat = _values(record.values.get(name, b""), element)
    if flat.size != count:
        raise ProtoError(f"literal of shape {shape.without_layout()}: {count} values expected, found {flat.size}")
    order = shape.minor_to_major
    if sorted(order) != list(range(shape.rank)):
        raise ProtoError(f"literal of shape {shape}: the layout is no order of the dimensions")
    try:
        array = flat.reshape([shape.dims[d] for d in reversed(order)])
    except ValueError:
        raise ProtoError(f"a literal of shape {shape.without_layout()} cannot be held") from None
    major_first = tuple(reversed(order))
    # np.ascontiguousarray adds a dimension to scalars.
    return Literal(np.ascontiguousarray(array.transpose(np.argsort(major_first))).reshape(shape.dims))


def _values(data: bytes, element: ElementType) -> Array:
    assert element.numpy is not None
    if element.name in _VARINTS:
        return _unpack(data).astype(element.numpy)
    if len(data) % element.numpy.itemsize:
        raise ProtoError(f"literal of type {element}: {len(data)} bytes")
    if element.is_integer and element.bits < 8:
        spare = 8 - element.bits
        signed = np.frombuffer(data, np.int8 if element.kind is Kind.SIGNED else np.uint8)
        return np.right_shift(np.left_shift(signed, spare), spare).astype(element.numpy)
    return np.frombuffer(data, element.numpy.newbyteorder("<") if element.numpy.isbuiltin == 1 else element.numpy)


def _unpack(data: bytes) -> Array:
    """Unpacks all varints in the data, as u64."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if raw.size and (not ends.size or ends[-1] != raw.size - 1):
        raise ProtoError("the data ends within a number")
    starts = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    lengths = ends - starts + 1
    if lengths.size and lengths.max() > 10:
        raise ProtoError("a number of more than 64 bits")
    values = np.zeros(ends.size, np.uint64)
    for i in range(int(lengths.max()) if lengths.size else 0):
        there = lengths > i
        part = (raw[starts[there] + i] & 0x7F).astype(np.uint64)
        values[there] |= part << np.uint64(7 * i)
    return values


def _pack(values: Array) -> bytes:
    """Packs u64 numbers as varints."""
    lengths = np.ones(values.size, np.int64)
    for i in range(1, 10):
        lengths += values >= np.uint64(1) << np.uint64(7 * i)
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    for i in range(int(lengths.max()) if lengths.size else 0):
        there = lengths > i
        part = (values[there] >> np.uint64(7 * i)).astype(np.uint64) & np.uint64(0x7F)
        more = (lengths[there] > i + 1).astype(np.uint64) << np.uint64(7)
        out[(ends - lengths)[there] + i] = (part | more).astype(np.uint8)
    return out.tobytes()


def _unpacked(shape: Shape) -> Shape:
    """Returns the shape without element sizes, which XLA's literals lack: their elements fill bytes."""
    if shape.is_tuple:
        return tuple_shape(tuple(_unpacked(element) for element in shape.elements))
    return shape if shape.layout is None else replace(shape, layout=shape.layout.with_element_size(""))


def literal_record(literal: Literal, shape: Shape) -> Record:
    """Returns the literal as LiteralProto, its values in the order of the shape's layout. Raises ProtoError."""
    record = new("LiteralProto")
    record.values["shape"] = shape_record(_unpacked(shape))
    if literal.array is None:
        pairs = zip(literal.elements, shape.elements, strict=True)
        record.values["tuple_literals"] = [literal_record(part, element) for part, element in pairs]
        return record
    flat = literal.array.transpose(tuple(reversed(shape.minor_to_major))).reshape(-1)
    element, name = shape.element, _field(shape.element)
    if element.name in _VARINTS:
        wide = flat.astype(np.int64).view(np.uint64) if element.kind is Kind.SIGNED else flat.astype(np.uint64)
        record.set(name, _pack(wide))
    elif element.is_integer and element.bits < 8:
        record.set(name, (flat.astype(np.int8).view(np.uint8) & ((1 << element.bits) - 1)).tobytes())
    else:
        little = flat.astype(flat.dtype.newbyteorder("<")) if flat.dtype.isbuiltin == 1 else flat
        record.set(name, np.ascontiguousarray(little).tobytes())
    return record
