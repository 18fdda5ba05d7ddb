"""Printing modules as HLO text that the parsers of XLA and Hloom accept.

Nothing here depends on opcodes. An instruction's own attributes print by walking the fields of its attribute class,
each value by its type. The attributes common to all instructions follow in XLA's order. Texts of shapes, shardings and
attributes are cached by value, because a program has few distinct ones.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from ..graph.attributes import NONE, Attributes, SliceDim, attribute_fields, inline_field
from ..graph.computation import Computation
from ..graph.flat_layout import FlatLayout, FlatMember
from ..graph.instruction import FrontendAttributes, Instruction
from ..graph.module import EntryLayout, Module, Stage
from ..keywords import KEYWORDS
from ..sharding.sharding import AnySharding
from ..strings import BracedText, key_text, quote
from ..types.element_type import ELEMENT_TYPES
from ..types.literal import Literal
from ..types.literal_text import literal_text, shaped_literal_text
from ..types.shape import Shape

STAGE_KEY = "hloom.stage"
GLOBAL_LAYOUT_KEY = "hloom.global_layout"
FLAT_LAYOUT_KEY = "hloom.flat_layout"


def module_text(module: Module) -> str:
    """Prints a module. Module frontend attributes, which XLA preserves, record a stage other than GLOBAL."""
    parts = [_header(module), ""]
    if module.stack_frames:
        parts += [module.stack_frames.strip("\n"), ""]
    entry = module.entry
    texts = _Texts()
    for computation in module.callees_first():
        parts += [*_computation(computation, computation is entry, texts), ""]
    return "\n".join(parts)


def computation_text(computation: Computation) -> str:
    """Prints a computation with its signature, preceded by `ENTRY` if it is its module's entry."""
    module = computation.parent
    is_entry = module is not None and any(c is computation for c in module.computations) and module.entry is computation
    return "\n".join(_computation(computation, is_entry, _Texts()))


def instruction_text(instruction: Instruction) -> str:
    """Prints an instruction on one line, without indent and without `ROOT`."""
    return _instruction(instruction, _Texts())


def entry_layout_text(layout: EntryLayout) -> str:
    """Prints `{(f32[2]{0}, s32[])->f32[2]{0}}`."""
    return "{(" + ", ".join(_numbered(list(map(str, layout.parameters)))) + ")->" + str(layout.result) + "}"



def _header(module: Module) -> str:
    layout = module.entry_layout or _derived_layout(module.entry)
    to_parameters, to_output = module.allow_propagation_to_parameters, module.allow_propagation_to_output
    fields = [
        ("is_scheduled", "true" if module.is_scheduled else ""),
        ("input_output_alias", module.input_output_alias),
        ("buffer_donor", module.buffer_donor),
        ("alias_passthrough_params", "true" if module.alias_passthrough_params else ""),
        ("entry_computation_layout", entry_layout_text(layout)),
        ("allow_spmd_sharding_propagation_to_parameters", value_text(to_parameters) if to_parameters else ""),
        ("allow_spmd_sharding_propagation_to_output", value_text(to_output) if to_output else ""),
        ("replica_count", str(module.replica_count) if module.replica_count != 1 else ""),
        ("num_partitions", str(module.num_partitions) if module.num_partitions != 1 else ""),
        ("frontend_attributes", frontend_attributes_text(header_frontend_attributes(module))),
        ("origin_recovery_table", module.origin_recovery_table),
    ]
    mark = "%" if module.name in KEYWORDS or module.name in ELEMENT_TYPES else ""
    return f"HloModule {mark}{module.name}" + "".join(f", {name}={text}" for name, text in fields if text)


def _derived_layout(entry: Computation) -> EntryLayout:
    return EntryLayout(tuple(p.shape for p in entry.parameters), entry.root.shape)


def header_frontend_attributes(module: Module) -> FrontendAttributes:
    """Returns the module's frontend attributes, including those that record its stage."""
    if module.stage is Stage.GLOBAL and module.global_layout is None:
        return module.frontend_attributes
    found = dict(module.frontend_attributes)
    if module.stage is not Stage.GLOBAL:
        found[STAGE_KEY] = module.stage.value
    if module.global_layout is not None:
        found[GLOBAL_LAYOUT_KEY] = BracedText(entry_layout_text(module.global_layout))
    if module.flat_layout is not None:
        found[FLAT_LAYOUT_KEY] = BracedText(flat_layout_text(module.flat_layout))
    return found


def flat_layout_text(layout: FlatLayout) -> str:
    """Prints the layout in the form that `ir/graph/flat_layout` describes."""
    parameters, results = ("; ".join(map(_place, places)) for places in (layout.parameters, layout.results))
    return f"{{({parameters})->({results})}}"


def _place(place: FlatMember) -> str:
    member = place.member
    if member is None:
        return str(place.number)
    sharding = "{}" if member.sharding is None else _sharding(member.sharding)
    path = f" {quote(member.op_name)}" if member.op_name else ""
    return f"{member.name}={place.number}[{member.start}] {member.shape} {member.whole} {sharding}{path}"


def _computation(computation: Computation, is_entry: bool, texts: _Texts) -> list[str]:
    """Returns the lines of a computation."""
    parameters = ", ".join(_numbered([f"{p.name}: {_bare(p.shape)}" for p in computation.parameters]))
    root = computation.root
    head = f"%{computation.name} ({parameters}) -> {_bare(root.shape)} {{"
    lines = ["ENTRY " + head if is_entry else head]
    lines += [_instruction(i, texts, "  ROOT %" if i is root else "  %") for i in computation]
    thread = f", execution_thread={quote(computation.execution_thread)}" if computation.execution_thread else ""
    lines.append("}" + thread)
    return lines


class _Texts:
    """The parts of lines that instructions share, in texts that are made once."""

    def __init__(self) -> None:
        self._same: dict[tuple[int, int, int], tuple[str, str, str]] = {}  # by identities, which the program keeps
        self._equal: dict[Attributes, tuple[str, str]] = {}

    def of(self, instruction: Instruction) -> tuple[str, str, str]:
        """Returns the texts before, in place of and after the operands of an instruction."""
        key = id(instruction.op), id(instruction.attributes), id(instruction.shape)
        found = self._same.get(key)
        if found is None:
            op, attributes = instruction.op, instruction.attributes
            own = ("", "") if attributes is NONE else self._equal.get(attributes)
            if own is None:
                own = self._equal[attributes] = _attributes(attributes, inline_field(op.attributes))
            found = self._same[key] = f" = {instruction.shape} {op.opcode}(", own[0], f"){own[1]}"
        return found


def _instruction(instruction: Instruction, texts: _Texts, start: str = "%") -> str:
    before, inside, after = texts.of(instruction)
    operands = instruction.operands
    if len(operands) == 1:
        inside = f"%{operands[0].name}"
    elif len(operands) == 2:
        inside = f"%{operands[0].name}, %{operands[1].name}"
    elif operands:
        names = ["%" + o.name for o in operands]
        inside = ", ".join(_numbered(names) if len(names) > 5 else names)
    text = f"{start}{instruction.name}{before}{inside}{after}"
    sharding, attributes, metadata = instruction.sharding, instruction.frontend_attributes, instruction.metadata
    if sharding is not None:
        text += f", sharding={_sharding(sharding)}"
    if attributes:
        text += f", frontend_attributes={frontend_attributes_text(attributes)}"
    if instruction.control_predecessors:
        text += ", control-predecessors={" + ", ".join("%" + p.name for p in instruction.control_predecessors) + "}"
    for name, value in instruction.other:
        text += f", {name}={value}"
    if metadata is not None:
        text += f", metadata={{{metadata.text}}}"
    config = instruction.backend_config
    if config is not None:
        text += f", backend_config={quote(config) if isinstance(config, str) else config.text}"
    return text


def _attributes(attributes: Attributes, inline: str | None) -> tuple[str, str]:
    """Returns the text between the parentheses, and the attributes after them."""
    inside, after = "", ""
    for field in attribute_fields(type(attributes)).values():
        value = getattr(attributes, field.name)
        if field.name == inline:
            inside = literal_text(value) if isinstance(value, Literal) else value_text(value)
        elif value is not None and (field.required or field.always or value != field.default):
            after += f", {field.name}={value_text(value)}"
    return inside, after


def value_text(value: Any) -> str:
    """Prints an attribute value by its type; the parser reads it back by the type of the field."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Computation):
        return "%" + value.name
    if isinstance(value, Literal):
        return shaped_literal_text(value)
    if isinstance(value, tuple):
        return _tuple_text(cast("tuple[Any, ...]", value))
    return str(value)


def _tuple_text(values: tuple[Any, ...]) -> str:
    if values and isinstance(values[0], SliceDim):
        dims = cast("tuple[SliceDim, ...]", values)
        strided = any(d.stride != 1 for d in dims)
        return "{" + ", ".join(f"[{d.start}:{d.limit}" + (f":{d.stride}]" if strided else "]") for d in dims) + "}"
    first: Any = values[0] if values else None
    if isinstance(first, tuple) and first and isinstance(first[0], int):
        return _rows_text(cast("tuple[tuple[int, ...], ...]", values))
    spaced = values and (isinstance(values[0], Computation | Shape) or dataclasses.is_dataclass(values[0]))
    return "{" + (", " if spaced else ",").join(map(value_text, values)) + "}"


@lru_cache(maxsize=64)
def _rows_text(rows: tuple[tuple[int, ...], ...]) -> str:
    """Prints rows of numbers. The permutes of a program have few lists of pairs, with an entry per device."""
    return "{" + ",".join(["{" + ",".join(map(str, row)) + "}" for row in rows]) + "}"


def frontend_attributes_text(attributes: FrontendAttributes) -> str:
    """Prints `{a="b",c={raw}}`, sorted by key; an empty text for no attributes."""
    if not attributes:
        return ""
    return "{" + ",".join(f"{key_text(k)}={_string_or_raw(v)}" for k, v in sorted(attributes.items())) + "}"


def _string_or_raw(value: str | BracedText) -> str:
    return quote(value) if isinstance(value, str) else value.text


def _numbered(parts: list[str]) -> list[str]:
    """Marks every fifth entry of a long list with its number, as XLA does."""
    return [f"/*index={i}*/{part}" if i and i % 5 == 0 else part for i, part in enumerate(parts)]


@lru_cache(maxsize=65536)
def _sharding(sharding: AnySharding) -> str:
    return str(sharding)


@lru_cache(maxsize=65536)
def _bare(shape: Shape) -> str:
    return str(shape.without_layout())
