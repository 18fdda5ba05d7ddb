"""Converts single attributes between HLO text and HloInstructionProto.

A codec reads one attribute from an instruction as text, and writes it there from text. Text is the common form of
names, enums and lists, and its readers and printers are tested against XLA. `fields` are the fields that a codec
handles; fields that no codec handles are preserved as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ...ir.strings import quote, unescape
from ...ir.types.shape import Shape
from ..hlo_text.errors import TextError
from ..hlo_text.scan import split_list
from ..hlo_text.shapes import parse_shape
from ..hlo_text.shardings import parse_sharding
from .shapes import shape_record, shape_text
from .shardings import joined, numbers, sharding_record, sharding_text
from .wire import ProtoError, Record

Read = Callable[[Record], "str | None"]
Write = Callable[[Record, str], None]


@dataclass(frozen=True)
class Codec:
    """Reads and writes one attribute. `read` returns the text of the value, None where it is absent; `zero` is the text
    of an absent required value.
    """

    fields: tuple[str, ...]
    read: Read
    write: Write
    zero: str = "{}"


def _at(path: str) -> tuple[Callable[[Record], Record], Callable[[Record], Record], str]:
    """Returns how to reach the record that holds the last field of a path, for reading and for writing, and the field's
    name.
    """
    *outer, name = path.split(".")

    def reading(record: Record) -> Record:
        for part in outer:
            record = record.sub(part)
        return record

    def writing(record: Record) -> Record:
        for part in outer:
            record = record.new(part)
        return record

    return reading, writing, name


def _simple(path: str, show: Callable[[object], str], parse: Callable[[str], object], zero: str) -> Codec:
    reading, writing, name = _at(path)

    def read(record: Record) -> str | None:
        value = reading(record).values.get(name)
        return None if value is None else show(value)

    return Codec((path.split(".")[0],), read, lambda record, text: writing(record).set(name, parse(text)), zero)


def shape(path: str) -> Codec:
    """Returns the codec of `name=f32[2]{0}`."""
    return _simple(path, lambda v: shape_text(cast("bytes", v)), lambda text: shape_record(parse_shape(text)), "")


def number(path: str) -> Codec:
    """Returns the codec of `name=3`."""
    return _simple(path, str, int, "0")


def optional_number(name: str) -> Codec:
    """Returns the codec of `name=3` that writes zero explicitly, because XLA reads an absent field otherwise."""

    def write(record: Record, text: str) -> None:
        record.values[name] = int(text)

    return replace(number(name), write=write)


def flag(path: str) -> Codec:
    """Returns the codec of `name=true`."""
    return _simple(path, lambda v: "true" if v else "false", lambda text: text == "true", "false")


def word(path: str) -> Codec:
    """Returns the codec of `name=word`, a string field."""
    return _simple(path, str, str, "")


def quoted(path: str) -> Codec:
    """Returns the codec of `name="text"`, a string or bytes field."""

    def show(value: object) -> str:
        return quote(value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value))

    return _simple(path, show, lambda text: unescape(text[1:-1]), '""')


def dims(path: str) -> Codec:
    """Returns the codec of `name={1,2}`."""
    reading, writing, name = _at(path)

    def read(record: Record) -> str | None:
        values = reading(record).ints(name)
        return "{" + joined(values) + "}" if values else None

    return Codec((path.split(".")[0],), read, lambda r, text: writing(r).set(name, numbers(text[1:-1])))


def single(name: str) -> Codec:
    """Returns the codec of `name=1`, stored in a repeated field."""

    def read(record: Record) -> str | None:
        values = record.ints(name)
        if len(values) > 1:
            raise ProtoError(f"{name} has {len(values)} entries, one is expected")
        return str(values[0]) if values else None

    return Codec((name,), read, lambda record, text: record.set(name, [int(text)]), "0")


def choice(path: str, names: Mapping[int, str]) -> Codec:
    """Returns the codec of `name=word`, an enum field."""
    by_name = {name: value for value, name in names.items()}

    def show(value: object) -> str:
        if not isinstance(value, int) or value not in names:
            raise ProtoError(f"{path} has the unknown value {value}")
        return names[value]

    def parse(text: str) -> object:
        if text not in by_name:
            raise ProtoError(f"{path}: '{text}' has no serialized form")
        return by_name[text]

    return _simple(path, show, parse, names.get(0, ""))


def always(codec: Codec) -> Codec:
    """Returns a codec that prints the zero value of a field even if the field is absent."""

    def read(record: Record) -> str:
        return codec.read(record) or codec.zero

    return replace(codec, read=read)


# -- lists of small messages


def _slices(record: Record) -> str | None:
    parts = [f"[{s.int('start')}:{s.int('limit')}:{s.int('stride')}]" for s in record.subs("slice_dimensions")]
    return "{" + ", ".join(parts) + "}" if parts else None


def _set_slices(record: Record, text: str) -> None:
    for start, limit, stride in re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", text):
        made = record.new("slice_dimensions")
        made.set("start", int(start))
        made.set("limit", int(limit))
        made.set("stride", int(stride or 1))


_PAD_FIELDS = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _padding(record: Record) -> str | None:
    parts = record.sub("padding_config").subs("dimensions")
    return "x".join("_".join(str(d.int(f)) for f in _PAD_FIELDS) for d in parts)


def _set_padding(record: Record, text: str) -> None:
    config = record.new("padding_config")
    for part in text.split("x") if text else ():
        made = config.new("dimensions")
        for field, value in zip(_PAD_FIELDS, part.split("_"), strict=False):
            made.set(field, int(value))


def _pairs(record: Record) -> str | None:
    pairs = [f"{{{p.int('source')},{p.int('target')}}}" for p in record.subs("source_target_pairs")]
    return "{" + ",".join(pairs) + "}" if pairs else None


def _set_pairs(record: Record, text: str) -> None:
    for source, target in re.findall(r"\{(-?\d+),\s*(-?\d+)\}", text):
        made = record.new("source_target_pairs")
        made.set("source", int(source))
        made.set("target", int(target))


def _read_shape(text: str) -> Shape:
    try:
        return parse_shape(text)
    except TextError as error:
        raise ProtoError(str(error)) from None


def _permuted_slices(record: Record) -> str | None:
    """Reads the slice sizes, which are stored in one list; the ranks of the result's buffers say where to split it."""
    sizes = record.ints("dynamic_slice_sizes")
    if not sizes:
        return None
    shape = _read_shape(shape_text(record.values.get("shape", b"")))
    result = shape.elements[1] if record.str("opcode").endswith("-start") and len(shape.elements) > 1 else shape
    ranks = [leaf.rank for leaf in result.leaves()]
    each, rest = divmod(len(sizes), sum(ranks) or 1)
    if rest or not sum(ranks):
        raise ProtoError(f"{len(sizes)} sizes for slices of buffers of ranks {ranks}")
    numbers = iter(sizes)
    rows = [joined([next(numbers) for _ in range(rank)]) for rank in ranks for _ in range(each)]
    return "{" + ",".join(f"{{{row}}}" for row in rows) + "}"


def _set_permuted_slices(record: Record, text: str) -> None:
    record.set("dynamic_slice_sizes", [int(n) for n in re.findall(r"\d+", text)])


_PRECISION_NAMES = ("default", "high", "highest")


def _precisions(record: Record) -> str | None:
    values = record.sub("precision_config").ints("operand_precision")
    if any(v not in range(3) for v in values):
        raise ProtoError(f"operand_precision {values}")
    return "{" + ",".join(_PRECISION_NAMES[v] for v in values) + "}" if any(values) else None


def _set_precisions(record: Record, text: str) -> None:
    values = [_PRECISION_NAMES.index(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    record.new("precision_config").set("operand_precision", values)


_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*\)")


def _aliasing(record: Record) -> str | None:
    parts = [
        f"{{{joined(a.ints('output_shape_index'))}}}: ({a.int('operand_index')}, "
        f"{{{joined(a.ints('operand_shape_index'))}}})"
        for a in record.subs("output_operand_aliasing")
    ]
    return "{" + ", ".join(parts) + "}" if parts else None


def _set_aliasing(record: Record, text: str) -> None:
    if not re.fullmatch(rf"\{{\s*(?:{_ALIAS.pattern}[\s,]*)*\}}", text):
        raise ProtoError(f"output_to_operand_aliasing={text} has no serialized form")
    for output, operand, index in _ALIAS.findall(text):
        made = record.new("output_operand_aliasing")
        made.set("output_shape_index", numbers(output))
        made.set("operand_index", int(operand))
        made.set("operand_shape_index", numbers(index))


def _accuracy(record: Record) -> str | None:
    if "result_accuracy" not in record.values:
        return None
    found = record.sub("result_accuracy")
    if "tolerance" in found.values:
        t = found.sub("tolerance")
        atol, rtol = (_shortest(cast("float", t.values.get(name, 0.0))) for name in ("atol", "rtol"))
        return f"{{tolerance={{atol={atol},rtol={rtol},ulps={t.int('ulps')}}}}}"
    return "{mode=highest}" if found.int("mode") else None


def _shortest(number: float) -> str:
    """Prints a number as XLA does, or with more digits if it needs them."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _set_accuracy(record: Record, text: str) -> None:
    made = record.new("result_accuracy")
    values = dict(re.findall(r"(atol|rtol|ulps|mode)\s*=\s*([^,}\s]+)", text))
    if "mode" in values:
        made.values["mode"] = int(values["mode"].lower() == "highest")
    else:
        tolerance = made.new("tolerance")
        tolerance.set("ulps", int(float(values.pop("ulps", 0))))
        for name, value in values.items():
            tolerance.set(name, float(value))


def _constraints(record: Record) -> str | None:
    if not record.int("constrain_layout"):
        return None
    shapes = [shape_text(data) for data in record.all("operand_shapes_with_layout")]
    for text in shapes:
        if any(leaf.rank and leaf.layout is None for leaf in _read_shape(text).leaves()):
            raise ProtoError(f"a constraint of the layout of {text} without a layout")
    return "{" + ", ".join(shapes) + "}"


def _set_constraints(record: Record, text: str) -> None:
    record.set("constrain_layout", True)
    shapes = [text[a:b].strip() for a, b in split_list(text, 1, len(text) - 1)]
    record.values["operand_shapes_with_layout"] = [shape_record(parse_shape(shape)) for shape in shapes if shape]


def real(path: str) -> Codec:
    """Returns the codec of `name=0.001`, an f32 field, in the fewest digits that read back as the same number."""
    return _simple(path, lambda v: str(np.float32(cast("float", v))), float, "0")


def _nothing(record: Record, text: str) -> None:
    """Writes nothing: the attribute follows from others, or XLA discards it."""


_DOMAIN = {"entry": "domain_exit_sharding", "exit": "domain_entry_sharding"}  # `entry` in text is `exit` in the message


def _domain(record: Record) -> str | None:
    sides = (f"{side}={sharding_text(record.values.get(field, b''))}" for side, field in _DOMAIN.items())
    return '{kind="sharding", ' + ", ".join(sides) + "}"


def _set_domain(record: Record, text: str) -> None:
    for begin, end in split_list(text, 1, len(text) - 1):
        side, _, value = text[begin:end].partition("=")
        if side in _DOMAIN:
            record.values[_DOMAIN[side]] = sharding_record(parse_sharding(value))


SLICES = Codec(("slice_dimensions",), _slices, _set_slices)
PADDING = Codec(("padding_config",), _padding, _set_padding, "")
PRECISIONS = Codec(("precision_config",), _precisions, _set_precisions)
ALIASING = Codec(("output_operand_aliasing",), _aliasing, _set_aliasing)
ACCURACY = Codec(("result_accuracy",), _accuracy, _set_accuracy)
PAIRS = Codec(("source_target_pairs",), _pairs, _set_pairs)
PERMUTED_SLICES = Codec(("dynamic_slice_sizes",), _permuted_slices, _set_permuted_slices)
CONSTRAINTS = Codec(("constrain_layout", "operand_shapes_with_layout"), _constraints, _set_constraints)
DOMAIN = Codec(tuple(_DOMAIN.values()), _domain, _set_domain)
IGNORED = Codec((), lambda record: None, _nothing)
PREFETCH = optional_number("cross_program_prefetch_index")  # zero and absent differ here
