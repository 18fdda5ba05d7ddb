"""Converts shapes and layouts between text and ShapeProto.

Serialized shapes have a layout for every array; an array without one in the text gets the default, major to minor.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...ir.types.element_type import TUPLE
from ...ir.types.shape import UNBOUNDED, Layout, Shape
from .schema import TABLES, new
from .wire import ProtoError, Record, decode

DEPTH_LIMIT = 60
_ANY = -(1 << 63)  # an unbounded dimension, or `*` in a tile

_NUMBERS = {
    "pred": 1, "s1": 30, "s2": 26, "s4": 21, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u1": 31, "u2": 27, "u4": 22,
    "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "f32": 11, "bf16": 16, "f64": 12, "f8e5m2": 19, "f8e4m3": 28,
    "f8e4m3fn": 20, "f8e4m3b11fnuz": 23, "f8e3m4": 29, "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "f4e2m1fn": 32,
    "f8e8m0fnu": 33, "f6e3m2fn": 35, "f6e2m3fn": 36, "c64": 15, "c128": 18, "opaque": 14, "token": 17,
}  # fmt: skip
_NAMES = {number: name for name, number in _NUMBERS.items()}
_TUPLE, _BUFFER = 13, 34


@lru_cache(maxsize=65536)
def shape_text(data: bytes, depth: int = 0) -> str:
    """Returns the shape as HLO text. Raises ProtoError."""
    if depth > DEPTH_LIMIT:
        raise ProtoError(f"tuple shapes nested deeper than {DEPTH_LIMIT} levels")
    record = decode(TABLES, "ShapeProto", data)
    number = record.int("element_type")
    if number in (_TUPLE, _BUFFER):
        parts = [shape_text(part, depth + 1) for part in record.all("tuple_shapes")]
        if number == _TUPLE:
            return "(" + ", ".join(parts) + ")"
        if len(parts) != 1:
            raise ProtoError(f"a buffer shape of {len(parts)} shapes")
        return f"b({parts[0]})"
    name = _NAMES.get(number)
    if name is None:
        raise ProtoError(f"element type {number} is not known")
    dims = record.ints("dimensions")
    dynamic = record.all("is_dynamic_dimension") or [False] * len(dims)
    if len(dynamic) != len(dims):
        raise ProtoError(f"a shape of {len(dims)} dimensions has {len(dynamic)} marks of dynamic ones")
    if any(d < 0 and d != _ANY for d in dims):
        raise ProtoError(f"a shape has a dimension of {min(dims)}")
    sizes = ("?" if d == _ANY else f"<={d}" if y else str(d) for d, y in zip(dims, dynamic, strict=True))
    layout = _layout_text(record.sub("layout"), depth) if "layout" in record.values else ""
    return f"{name}[{','.join(sizes)}]{layout}"


def _layout_text(record: Record, depth: int) -> str:
    order = ",".join(map(str, record.ints("minor_to_major")))
    tiles = [t.ints("dimensions") for t in record.subs("tiles")]
    rest = "".join(f"({','.join('*' if d == _ANY else str(d) for d in t)})" for t in tiles)
    rest = f"T{rest}" if rest else ""
    if record.int("tail_padding_alignment_in_elements") > 1:
        rest += f"L({record.int('tail_padding_alignment_in_elements')})"
    for sign, name in (("#", "index_primitive_type"), ("*", "pointer_primitive_type")):
        if record.int(name):
            rest += f"{sign}({_NAMES.get(record.int(name), 'invalid')})"
    for sign, name in (("E", "element_size_in_bits"), ("S", "memory_space")):
        if record.int(name):
            rest += f"{sign}({record.int(name)})"
    splits = [f"({s.int('dimension')}:{','.join(map(str, s.ints('split_indices')))})"
              for s in record.subs("split_configs")]  # fmt: skip
    rest += "SC" + "".join(splits) if splits else ""
    if "physical_shape" in record.values:
        rest += f"P({shape_text(record.values['physical_shape'], depth + 1)})"
    if record.int("dynamic_shape_metadata_prefix_bytes"):
        rest += f"M({record.int('dynamic_shape_metadata_prefix_bytes')})"
    if not order and not rest:
        return ""
    return "{" + order + (f":{rest}" if rest else "") + "}"


@lru_cache(maxsize=65536)
def shape_record(shape: Shape) -> Record:
    """Returns the shape as ShapeProto, default layouts filled in. Callers must not change the record, which is shared.
    """
    record = new("ShapeProto")
    if shape.is_buffer:
        record.set("element_type", _BUFFER)
        inner = Shape(shape.element, shape.dims, shape.layout, shape.elements, shape.dynamic)
        record.values["tuple_shapes"] = [shape_record(inner)]
    elif shape.element is TUPLE:
        record.set("element_type", _TUPLE)
        record.values["tuple_shapes"] = [shape_record(e) for e in shape.elements]
    else:
        record.set("element_type", _NUMBERS[shape.element.name])
        record.set("dimensions", [_ANY if d == UNBOUNDED else d for d in shape.dims])
        dynamic = shape.dynamic or (False,) * shape.rank
        record.set("is_dynamic_dimension", [y or d == UNBOUNDED for d, y in zip(shape.dims, dynamic, strict=True)])
        if shape.is_array:
            record.values["layout"] = _layout_record(shape.layout or Layout(), shape.minor_to_major)
    return record


_PART = re.compile(r"(L|E|S|M|#|\*|SC|P|D)((?:\((?:[^()]|\([^()]*\))*\))+)")
_NUMBER_PARTS = {
    "L": "tail_padding_alignment_in_elements",
    "E": "element_size_in_bits",
    "S": "memory_space",
    "M": "dynamic_shape_metadata_prefix_bytes",
}
_TYPE_PARTS = {"#": "index_primitive_type", "*": "pointer_primitive_type"}


def _layout_record(layout: Layout, minor_to_major: tuple[int, ...]) -> Record:
    record = new("LayoutProto")
    record.set("minor_to_major", list(minor_to_major))
    for tile in layout.tiles:
        record.new("tiles").set("dimensions", [_ANY if d is None else d for d in tile])
    record.set("tail_padding_alignment_in_elements", 1)
    place = 0
    while place < len(layout.rest):
        match = _PART.match(layout.rest, place)
        if match is None or match[1] in "DP":
            # XLA drops D, and uses P for sparse arrays only, which no program can create.
            raise ProtoError(f"layout {layout}: '{layout.rest[place:]}' has no serialized form")
        _layout_part(record, match[1], match[2][1:-1])
        place = match.end()
    return record


def _layout_part(record: Record, sign: str, text: str) -> None:
    if sign in _NUMBER_PARTS:
        record.set(_NUMBER_PARTS[sign], int(text))
    elif sign in _TYPE_PARTS:
        record.set(_TYPE_PARTS[sign], _NUMBERS[text.strip()])
    else:
        for part in text.split(")("):
            split = record.new("split_configs")
            dimension, _, indices = part.partition(":")
            split.set("dimension", int(dimension))
            split.set("split_indices", [int(i) for i in indices.split(",") if i.strip()])

