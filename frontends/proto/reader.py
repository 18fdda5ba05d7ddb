"""Reads a HloModuleProto as a module.

The messages are written as HLO text, which the reader of HLO text reads. So both forms of a program go through the same
checks, and errors in a serialized program show readable text. Values of constants do not pass through text: it refers
to a list of them by number (`constant(@3)`). Fields without a text are kept with the instruction or the module
(`proto_extras`), to be written again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostics import SourceFile
from ...ir.graph.attributes import CALLEES, AttributeField, Callee, attribute_fields, inline_field
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp, find_op
from ...ir.ops.async_ops import starts_computation
from ...ir.ops.starts import Starts
from ...ir.strings import quote
from ...ir.types.literal import Literal
from ..hlo_text.module_reader import ModuleReader
from ..hlo_text.scan import skip_space, value_end
from ..hlo_text.shapes import parse_shape, shape_end
from .attributes import CALLED_ORDER, DEFAULTS, codec, is_default_type
from .headers import header_text, safe_name, tables_text
from .literals import read_literal
from .metadata import frontend_attributes_text, metadata_text, other_texts
from .shapes import shape_text
from .shardings import sharding_text
from .wire import ProtoError, Record, encode, is_fully_known
from .writer import ProtoExtras, field_bytes

_COMMON = frozenset((
    "name", "opcode", "shape", "id", "operand_ids", "called_computation_ids", "control_predecessor_ids", "sharding",
    "frontend_attributes", "metadata", "backend_config", "parameter_replication", "statistics_viz", "original_value",
    "literal",
))  # fmt: skip


_GENERATED_NAME = re.compile(r"(?:async|wrapped)_[\w\-]+(?:\.\d+)*")  # Hloom's and XLA's
MOST_DEPTH = 8


@dataclass
class _PendingInstruction:
    """An instruction that is being converted to text."""

    record: Record
    name: str
    opcode: str


class ProtoText:
    """Writes one HloModuleProto as text. `depth` counts the modules around it, in recovery tables."""

    def __init__(self, module: Record, depth: int = 0) -> None:
        if depth > MOST_DEPTH:
            raise ProtoError(f"modules nest deeper than {MOST_DEPTH} levels in recovery tables")
        self.depth = depth
        self.module = module
        self.literals: list[Record] = []
        self.extras: dict[tuple[str, str], ProtoExtras] = {}
        self._computations = {c.int("id"): c for c in module.subs("computations")}
        self._names: dict[int, str] = {}
        self._payloads = tuple(module.all("metadata_payloads"))
        self._wrapped = self._wrapped_computations()

    def text(self) -> str:
        """Returns the text. Raises ProtoError."""
        tables = tables_text(self.module)
        parts = [header_text(self.module, self._inner), "", *([tables, ""] if tables else [])]
        entry = self.module.int("entry_computation_id")
        if entry not in self._computations:
            raise ProtoError(f"the entry computation {entry} is not there")
        taken: set[str] = set()
        for number, computation in self._computations.items():
            self._names[number] = _unique(safe_name(computation.str("name")), taken)
        sequences = {s.int("key"): s.sub("value").ints("instruction_ids")
                     for s in self.module.sub("schedule").subs("sequences")}  # fmt: skip
        for number, computation in self._computations.items():
            if number not in self._wrapped:
                parts += self._computation(number, computation, number == entry, sequences.get(number))
        return "\n".join(parts)

    def _inner(self, module: Record) -> str:
        return ProtoText(module, self.depth + 1).text()

    # -- async computations of a single op become that op's start

    def _wrapped_computations(self) -> dict[int, Record]:
        """Returns the roots of computations that only one async-start calls and that consist of one op on their
        parameters.

        Only computations with generated names count; a computation that somebody named is kept.
        """
        calls: dict[int, list[Record]] = {}
        for computation in self._computations.values():
            for instruction in computation.subs("instructions"):
                for number in instruction.ints("called_computation_ids"):
                    calls.setdefault(number, []).append(instruction)
        found: dict[int, Record] = {}
        for number, users in calls.items():
            starts = [u for u in users if u.str("opcode") == "async-start"]
            links = [u for u in users if u.str("opcode") in ("async-update", "async-done")]
            is_alone = len(starts) == 1 and len(starts) + len(links) == len(users) and number in self._computations
            if is_alone and _GENERATED_NAME.fullmatch(self._computations[number].str("name")):
                root = _single_op(self._computations[number], starts[0])
                if root is not None:
                    found[number] = root
        return found

    # -- computations and instructions

    def _computation(self, number: int, computation: Record, is_entry: bool, order: list[int] | None) -> Iterator[str]:
        records = list(computation.subs("instructions"))
        if order is not None:
            by_id = {r.int("id"): r for r in records}
            if sorted(by_id) != sorted(order):
                raise ProtoError(f"the schedule of {self._names[number]} does not name its instructions once each")
            records = [by_id[i] for i in order]
        yield ("ENTRY " if is_entry else "") + f"%{self._names[number]} {{"
        lines: dict[int, _PendingInstruction] = {}
        taken: set[str] = set()
        for record in records:
            name = _unique(safe_name(record.str("name")), taken)
            line = _PendingInstruction(record, name, "")
            text = self._instruction(line, lines, self._names[number])
            lines[record.int("id")] = line
            yield ("  ROOT " if record.int("id") == computation.int("root_id") else "  ") + text
        if computation.int("root_id") not in lines:
            raise ProtoError(f"the root of computation {self._names[number]} is not in it")
        thread = computation.str("execution_thread")
        tail = f', execution_thread="{thread}"' if thread and thread != "main" else ""
        yield "}" + tail + "\n"

    def _instruction(self, line: _PendingInstruction, lines: dict[int, _PendingInstruction], computation: str) -> str:
        record = line.record
        operands = [_named(lines, i, line.name) for i in record.ints("operand_ids")]
        line.opcode, own, op = self._opcode(record, operands)
        shape = shape_text(record.values.get("shape", b""))
        extras = ProtoExtras()
        taken: set[str] = set(_COMMON)
        inline = ", ".join(f"%{o.name}" for o in operands)
        parts: list[str] = []
        element, between = _element(operands[0].record) if operands else "", inline_field(op.attributes)
        for name, text in self._attributes(own, op, element, taken):
            if name == between:
                inline = text
            else:
                parts.append(f", {name}={text}")
        parts += [f", {name}={text}" for name, text in self._common(record, lines, line.name)]
        self._add_extras(record, taken, extras)
        if extras.rest or extras.fields:
            self.extras[computation, line.name] = extras
        return f"%{line.name} = {shape} {line.opcode}({inline})" + "".join(parts)

    def _opcode(self, record: Record, operands: list[_PendingInstruction]) -> tuple[str, Record, AnyOp]:
        """Returns the opcode in HLO text, the record that holds the attributes, and the op."""
        opcode = record.str("opcode")
        called = record.ints("called_computation_ids")
        own = record
        if opcode == "async-start" and len(called) == 1 and called[0] in self._wrapped:
            own = self._wrapped[called[0]]
            opcode = own.str("opcode") + "-start"
            thread = record.str("async_execution_thread")
            own.values.pop("async_execution_thread", None)
            if thread and thread != "main":
                own.set("async_execution_thread", thread)
        elif opcode in ("async-update", "async-done") and operands:
            stem = operands[0].opcode.removesuffix("-start").removesuffix("-update")
            own = record if stem == "async" else Record(record.table, record.tables)
            opcode = opcode.replace("async", stem)
        op = find_op(opcode)
        if op is None:
            raise ProtoError(f"opcode '{opcode}' is not supported")
        return opcode, own, op

    def _attributes(self, record: Record, op: AnyOp, element: str, taken: set[str]) -> Iterator[tuple[str, str]]:
        fields = attribute_fields(op.attributes)
        yield from self._called(record, op, fields, element)
        for name, kind in fields.items():
            if kind.is_called:
                continue
            if kind.type is Literal:
                if "literal" in record.values:
                    literal = record.sub("literal")
                    self.literals.append(literal)
                    shape = "" if kind.inline else shape_text(literal.values.get("shape", b"")) + " "
                    yield name, f"{shape}@{len(self.literals) - 1}"
                continue
            found = codec(_base(op), name)
            taken.update(found.fields)
            text = found.read(record)
            if text is None and (kind.required or kind.default is True):
                text = found.zero
            if text is not None and text not in DEFAULTS.get(name, ()) and not is_default_type(name, text, element):
                yield name, text

    def _called(
        self, record: Record, op: AnyOp, fields: dict[str, AttributeField], element: str
    ) -> Iterator[tuple[str, str]]:
        names: list[str] = []
        for number in record.ints("called_computation_ids"):
            if number not in self._names:
                raise ProtoError(f"{record.str('name')} calls computation {number}, which is not there")
            names.append(f"%{self._names[number]}")
        single = [f for f, kind in fields.items() if kind.type is Callee]
        single = list(CALLED_ORDER.get(_base(op).opcode, single))
        several = [f for f, kind in fields.items() if kind.type == CALLEES]
        if several and (len(names) != len(single) or element != "pred"):
            single = []
        yield from zip(single, names, strict=False)
        rest = names[len(single) :]
        if rest and several:
            yield several[0], "{" + ", ".join(rest) + "}"
        elif rest:
            raise ProtoError(f"{record.str('name')} calls {len(names)} computations, {op.opcode} has {len(single)}")

    def _common(self, record: Record, lines: dict[int, _PendingInstruction], name: str) -> Iterator[tuple[str, str]]:
        values = record.values
        if "sharding" in values:
            yield "sharding", sharding_text(values["sharding"])
        attributes = frontend_attributes_text(values.get("frontend_attributes", b""))
        if attributes:
            yield "frontend_attributes", attributes
        before = [f"%{_named(lines, i, name).name}" for i in record.ints("control_predecessor_ids")]
        if before:
            yield "control-predecessors", "{" + ", ".join(before) + "}"
        yield from other_texts(record)
        metadata = metadata_text(values.get("metadata", b""), self._payloads)
        if metadata:
            yield "metadata", f"{{{metadata}}}"
        config = values.get("backend_config", b"").decode("utf-8", "surrogateescape")
        if config:
            yield "backend_config", quote(config)

    def _add_extras(self, record: Record, taken: set[str], extras: ProtoExtras) -> None:
        rest = {k: v for k, v in record.values.items() if k not in taken}
        extras.rest = encode(Record(record.table, record.tables, rest, record.unknown))
        for name, value in record.values.items():
            known = record.table.by_name[name]
            single = known.is_message and not known.repeated and name not in rest and name != "literal"
            if single and not is_fully_known(record.tables, known.kind, value):
                extras.fields[name] = (value, b"")


def _base(op: AnyOp) -> AnyOp:
    """Returns the op that a derived start wraps, whose attributes are its own too; other ops as they are."""
    start = op.interface(Starts)
    return op if start is None or starts_computation(op) else start.wrapped


def _element(record: Record) -> str:
    return re.split(r"[\[(]", shape_text(record.values.get("shape", b"")))[0]


def _named(lines: dict[int, _PendingInstruction], number: int, name: str) -> _PendingInstruction:
    line = lines.get(number)
    if line is None:
        raise ProtoError(f"{name} refers to instruction {number}, which is not defined before it")
    return line


def _unique(name: str, taken: set[str]) -> str:
    base, number = name, 1
    while name in taken:
        name, number = f"{base}.{number}", number + 1
    taken.add(name)
    return name


def _single_op(computation: Record, start: Record) -> Record | None:
    """Returns the root of a computation that is one op on its parameters in order, without attributes that its start
    lacks.
    """
    records = list(computation.subs("instructions"))
    parameters = sorted((r for r in records if r.str("opcode") == "parameter"), key=lambda r: r.int("parameter_number"))
    root = next((r for r in records if r.int("id") == computation.int("root_id")), None)
    if root is None or len(parameters) != len(records) - 1 or root.str("opcode") == "parameter":
        return None
    if root.ints("operand_ids") != [p.int("id") for p in parameters] or root.unknown:
        return None
    extra = ("sharding", "frontend_attributes", "backend_config", "statistics_viz", "original_value")
    if not is_fully_known(root.tables, root.table.name, encode(root)):
        return None
    if any(root.values.get(name, b"") not in (b"", start.values.get(name, b"")) for name in extra):
        return None
    if (start.str("async_execution_thread") or "main") != (computation.str("execution_thread") or "main"):
        return None
    op = find_op(root.str("opcode") + "-start")
    return root if op is not None and op.interface(Starts) else None


class ProtoModuleReader(ModuleReader):
    """Reads the text that `ProtoText` writes, with its literals."""

    def __init__(self, source: SourceFile, literals: list[Record]) -> None:
        super().__init__(source)
        self.literals = literals

    def _literal_end(self, start: int) -> int:
        return value_end(self.text, skip_space(self.text, shape_end(self.text, start)))

    def _literal(self, text: str, start: int, shape: Any) -> Literal:
        if shape is None:
            shape = parse_shape(text.rpartition("@")[0].strip())
        number = int(text.rpartition("@")[2])
        try:
            return read_literal(self.literals[number], shape)
        except ProtoError as error:
            raise ValueError(str(error)) from None


def read_record(record: Record, filename: str) -> Module:
    """Converts an HloModuleProto to a module, without verifying it. Raises ProtoError, CompileError."""
    writer = ProtoText(record)
    text = writer.text()
    module = ProtoModuleReader(SourceFile(filename, text), writer.literals).read()
    module.proto_extras = ProtoExtras(record.unknown) if record.unknown else None
    for computation in module:
        for instruction in computation:
            extras = instruction.proto_extras = writer.extras.get((computation.name, instruction.name))
            if extras is not None:
                fields = {name: (raw, field_bytes(instruction, name)) for name, (raw, _) in extras.fields.items()}
                extras.fields.update(fields)
    return module
