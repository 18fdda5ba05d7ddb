"""Converts the header attributes of a module and its stack-frame tables between text and messages.

HloModuleProto has no field for the counts of replicas and partitions and for a few more attributes of the text. Hloom
stores those in the field `hloom_header`, whose number XLA does not use and skips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...ir.graph.module import EntryLayout, Module
from ...ir.strings import quote, unescape
from ...ir.tools.printer import header_frontend_attributes
from ...ir.types.element_type import ELEMENT_TYPES
from .metadata import frontend_attributes_record, frontend_attributes_text
from .recovery import recovery_text
from .shapes import shape_record, shape_text
from .shardings import joined, numbers
from .wire import Record

_KINDS = {1: "may-alias", 2: "must-alias"}


def header_text(module: Record, module_text: Callable[[Record], str]) -> str:
    """Returns `HloModule name, attribute=value, ..`. `module_text` prints the modules inside the header."""
    attributes = [*_attributes(module)]
    table = recovery_text(module.sub("original_value_recovery_table"), module_text)
    if table:
        attributes.append(("origin_recovery_table", table))
    return f"HloModule {safe_name(module.str('name'))}" + "".join(f", {k}={v}" for k, v in attributes)


def safe_name(name: str) -> str:
    """Returns the name with characters that are invalid in HLO text replaced. XLA renames instructions named like a
    type.
    """
    clean = re.sub(r"[^A-Za-z0-9_.\-]", "_", name) + "_" * (name in ELEMENT_TYPES)
    return clean if re.match(r"[A-Za-z_]", clean) else f"_{clean}"


def _attributes(module: Record) -> Iterator[tuple[str, str]]:
    if "schedule" in module.values:
        yield "is_scheduled", "true"
    aliases = [
        f"{{{joined(e.ints('output_shape_index'))}}}: ({e.int('parameter_number')}, "
        f"{{{joined(e.ints('parameter_shape_index'))}}}, {_KINDS.get(e.int('kind'), 'may-alias')})"
        for e in module.sub("input_output_alias").subs("entries")
    ]
    if aliases:
        yield "input_output_alias", "{ " + ", ".join(aliases) + " }"
    donors = [
        f"({e.int('parameter_number')}, {{{joined(e.ints('parameter_shape_index'))}}})"
        for e in module.sub("buffer_donor").subs("entries")
    ]
    if donors:
        yield "buffer_donor", "{ " + ", ".join(donors) + " }"
    if "host_program_shape" in module.values:
        shape = module.sub("host_program_shape")
        parameters = ", ".join(shape_text(p) for p in shape.all("parameters"))
        yield "entry_computation_layout", f"{{({parameters})->{shape_text(shape.values.get('result', b''))}}}"
    attributes = frontend_attributes_text(module.values.get("frontend_attributes", b""))
    if attributes:
        yield "frontend_attributes", attributes
    yield from re.findall(r"([a-z_]+)=(\{[a-z,]*\}|\w+)", module.str("hloom_header"))


_INDEX = r"\{([\d,\s]*)\}"
_ALIAS = re.compile(rf"{_INDEX}\s*:\s*\(\s*(\d+)\s*(?:,\s*{_INDEX}\s*(?:,\s*(may|must)-alias\s*)?)?\)")
_DONOR = re.compile(rf"\(\s*(\d+)\s*,\s*{_INDEX}\s*\)")


def set_header(record: Record, module: Module, layout: EntryLayout) -> None:
    """Writes the header into HloModuleProto, except for the schedule, which needs the ids. Raises ProtoError."""
    record.set("name", safe_name(module.name))
    program = record.new("host_program_shape")
    program.values["parameters"] = [shape_record(p) for p in layout.parameters]
    program.values["result"] = shape_record(layout.result)
    for output, number, index, kind in _ALIAS.findall(module.input_output_alias):
        entry = record.new("input_output_alias").new("entries")
        entry.set("output_shape_index", numbers(output))
        entry.set("parameter_number", int(number))
        entry.set("parameter_shape_index", numbers(index))
        entry.set("kind", 2 if kind == "must" else 1)
    for number, index in _DONOR.findall(module.buffer_donor):
        entry = record.new("buffer_donor").new("entries")
        entry.set("parameter_number", int(number))
        entry.set("parameter_shape_index", numbers(index))
    attributes = header_frontend_attributes(module)
    if attributes:
        record.values["frontend_attributes"] = frontend_attributes_record(attributes)
    record.set("hloom_header", ", ".join(f"{k}={v}" for k, v in _extras(module)))


def _extras(module: Module) -> Iterator[tuple[str, str]]:
    for name, count in (("replica_count", module.replica_count), ("num_partitions", module.num_partitions)):
        if count != 1:
            yield name, str(count)
    if module.alias_passthrough_params:
        yield "alias_passthrough_params", "true"
    for place, flags in (
        ("parameters", module.allow_propagation_to_parameters),
        ("output", module.allow_propagation_to_output),
    ):
        if flags:
            values = ",".join("true" if f else "false" for f in flags)
            yield f"allow_spmd_sharding_propagation_to_{place}", f"{{{values}}}"


# -- stack frames

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")


def tables_text(module: Record) -> str:
    """Returns the four tables of stack frames as text, empty if there are none. Text numbers parents from 1, so a
    root's parent is 1.
    """
    if "stack_frame_index" not in module.values:
        return ""
    index = module.sub("stack_frame_index")
    tables = {
        "FileNames": [quote(name) for name in index.all("file_names")],
        "FunctionNames": [quote(name) for name in index.all("function_names")],
        "FileLocations": [
            "{" + " ".join(f"{f}={row.int(f)}" for f in _LOCATION) + "}" for row in index.subs("file_locations")
        ],
        "StackFrames": [
            f"{{file_location_id={row.int('file_location_id')} parent_frame_id={row.int('parent_frame_id') + 1}}}"
            for row in index.subs("stack_frames")
        ],
    }
    parts = ["\n".join([title, *(f"{n} {row}" for n, row in enumerate(rows, 1))]) for title, rows in tables.items()]
    return "\n\n".join(parts) if any(tables.values()) else ""


_ROW = re.compile(r"\s*\d+\s+(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\{[^{}]*\})", re.DOTALL)


def set_tables(record: Record, text: str) -> None:
    """Writes the tables into HloModuleProto."""
    if not text:
        return
    index = record.new("stack_frame_index")
    titles = "FileNames|FunctionNames|FileLocations|StackFrames"
    sections = re.split(rf"^({titles})$", "\n" + text, flags=re.MULTILINE)
    for title, rows in zip(sections[1::2], sections[2::2], strict=True):
        found = [match[1] for match in _ROW.finditer(rows)]
        if title in ("FileNames", "FunctionNames"):
            index.set("file_names" if title == "FileNames" else "function_names",
                      [unescape(row[1:-1]) for row in found])
            continue
        for row in found:
            made = index.new("file_locations" if title == "FileLocations" else "stack_frames")
            for key, value in re.findall(r"([a-z_]+)=(-?\d+)", row):
                made.set(key, int(value) - (key == "parent_frame_id"))


