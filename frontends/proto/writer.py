"""Converts a module to HloModuleProto.

Ids are assigned as in XLA: computations count from 0 in order; an instruction's id has its computation's id in the
upper half and its index in the lower. A derived start (`negate-start`) becomes an `async-start` that calls a
computation of that one op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.graph.attributes import attribute_fields
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import EntryLayout, Module
from ...ir.graph.op import OPS, AnyOp, Role
from ...ir.ops.async_ops import MAIN_THREAD, execution_thread
from ...ir.ops.starts import Starts, starts
from ...ir.strings import BracedText
from ...ir.tools.printer import value_text
from ...ir.types.literal import Literal
from ...ir.types.shape import Shape
from ..hlo_text import parse
from .attributes import CALLED_ORDER, DEFAULTS, codec, is_default_type
from .headers import safe_name, set_header, set_tables
from .literals import literal_record
from .metadata import frontend_attributes_record, metadata_record, set_other
from .recovery import set_recovery
from .schema import new
from .shapes import shape_record
from .shardings import sharding_record
from .wire import Record, encode


@dataclass
class ProtoExtras:
    """Protobuf fields of an instruction or a module that HLO text cannot express, as they were read.

    `rest` are whole fields. `fields` are messages with unknown parts, each paired with the writer's output for its
    known parts: a message is written again only if that output is unchanged.
    """

    rest: bytes = b""
    fields: dict[str, tuple[bytes, bytes]] = field(default_factory=dict[str, tuple[bytes, bytes]])


class _Names:
    """Makes names unique in the whole module, as serialized modules require. Like XLA, it replaces the number at the
    end of a repeated name by the next free one.
    """

    def __init__(self) -> None:
        self.used: dict[str, set[int]] = {}
        self.next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        root, dot, suffix = name.rpartition(".")
        numbered = bool(root) and suffix.isdigit()
        root, number = (root, int(suffix)) if numbered else (name, 0)
        used = self.used.setdefault(root, set())
        if number in used:
            number = self.next.get(root, 0)
            while number in used:
                number += 1
            self.next[root] = number + 1
        used.add(number)
        return f"{root}{dot if numbered else '.'}{number}" if numbered or number else root


class ModuleWriter:
    """Writes one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.record = new("HloModuleProto")
        self.computations: dict[Computation, int] = {}
        self.ids: dict[Instruction, int] = {}
        self.names, self.computation_names = _Names(), _Names()
        self.unique_names: dict[Instruction, str] = {}
        self.wrapped = 0
        self.payloads: dict[str, int] = {}

    def write(self) -> Record:
        """Returns the message. Raises ProtoError for values that the message cannot represent."""
        module, record = self.module, self.record
        entry = module.entry
        fused = {c for computation in module for i in computation if i.op.role is Role.FUSION for c in i.called()}
        for computation in module.computations:
            self._computation(computation, computation in fused)
        layout = module.entry_layout or EntryLayout(tuple(p.shape for p in entry.parameters), entry.root.shape)
        set_header(record, module, layout)
        record.sub("host_program_shape").set("parameter_names", [self.unique_names[p] for p in entry.parameters])
        number = self.computations[entry]
        record.set("entry_computation_name", record.all("computations")[number].str("name"))
        record.set("entry_computation_id", number)
        if module.is_scheduled:
            self._schedule()
        set_tables(record, module.stack_frames)
        if module.origin_recovery_table:
            table = record.new("original_value_recovery_table")
            set_recovery(table, module.origin_recovery_table, lambda text: write_record(parse(text, "recovery module")))
        record.set("metadata_payloads", list(self.payloads))
        record.unknown = module.proto_extras.rest if isinstance(module.proto_extras, ProtoExtras) else b""
        return record

    def _schedule(self) -> None:
        schedule = self.record.new("schedule")
        for computation in self.record.all("computations"):
            if not computation.int("is_fusion_computation"):
                sequence = schedule.new("sequences")
                sequence.set("key", computation.int("id"))
                sequence.new("value").set("instruction_ids", [i.int("id") for i in computation.all("instructions")])

    def _new_computation(self, name: str, parameters: Sequence[Shape], result: Shape) -> Record:
        made = new("HloComputationProto")
        made.set("name", name)
        program = made.new("program_shape")
        program.values["parameters"] = [shape_record(shape) for shape in parameters]
        program.values["result"] = shape_record(result)
        return made

    def _add(self, made: Record) -> int:
        """Appends a finished computation and derives the ids of its instructions from its own."""
        computations = self.record.values.setdefault("computations", [])
        number = len(computations)
        computations.append(made)
        made.set("id", number)
        return number

    def _computation(self, computation: Computation, is_fused: bool) -> None:
        shapes = [p.shape for p in computation.parameters]
        name = self.computation_names.unique(safe_name(computation.name))
        made = self._new_computation(name, shapes, computation.root.shape)
        made.set("is_fusion_computation", is_fused)
        made.set("execution_thread", computation.execution_thread or "main")
        calls = [i for i in computation if i.op.interface(Starts) and i.opcode not in OPS]
        wrapped = {i: self._wrap(i) for i in calls}
        number = self._add(made)
        self.computations[computation] = number
        for place, instruction in enumerate(computation):
            self.ids[instruction] = number << 32 | place
            record = self._instruction(instruction, wrapped.get(instruction))
            made.values.setdefault("instructions", []).append(record)
        made.sub("program_shape").set("parameter_names", [self.unique_names[p] for p in computation.parameters])
        made.set("root_id", self.ids[computation.root])

    def _instruction(self, instruction: Instruction, wrapped: int | None) -> Record:
        record = new("HloInstructionProto")
        record.set("id", self.ids[instruction])
        record.set("operand_ids", [self.ids[o] for o in instruction.operands])
        record.set("control_predecessor_ids", [self.ids[p] for p in instruction.control_predecessors])
        op = instruction.op
        if wrapped is not None:
            record.set("opcode", "async-start")
            record.set("called_computation_ids", [wrapped])
            record.set("async_execution_thread", execution_thread(instruction) or MAIN_THREAD)
        elif op.role in (Role.UPDATE, Role.DONE) and op.opcode not in OPS:
            record.set("opcode", f"async-{op.role.value}")
        else:
            record.set("opcode", op.opcode)
            self._attributes(record, op, instruction.attributes, instruction.shape, instruction.operands)
        _annotate(record, instruction, self.payloads)
        self.unique_names[instruction] = self.names.unique(instruction.name)
        record.set("name", self.unique_names[instruction])
        extras = instruction.proto_extras
        if isinstance(extras, ProtoExtras):
            record.unknown = extras.rest
            for name, (raw, plain) in extras.fields.items():
                if field_bytes(instruction, name) == plain:
                    record.values[name] = raw
        return record

    def _attributes(
        self, record: Record, op: AnyOp, attributes: Any, shape: Shape, operands: Sequence[Instruction]
    ) -> None:
        element = operands[0].shape.element.name if operands else ""
        fields = attribute_fields(op.attributes)
        called: dict[str, list[Computation]] = {}
        for name, kind in fields.items():
            value = getattr(attributes, name)
            if kind.is_called:
                called[name] = [] if value is None else [value] if isinstance(value, Computation) else list(value)
            elif isinstance(value, Literal):
                record.values["literal"] = literal_record(value, shape if kind.inline else value.shape)
            elif kind.type is not Literal:
                text = DEFAULTS.get(name, (None,))[0] if value is None else value_text(value)
                if text is not None and not is_default_type(name, text, element):
                    codec(op, name).write(record, text)
        order = CALLED_ORDER.get(op.opcode, tuple(called))
        numbers = [self.computations[c] for name in order for c in called[name]]
        record.set("called_computation_ids", numbers)

    def _wrap(self, start: Instruction) -> int:
        """Creates the computation of the one op that a derived start begins."""
        op = starts(start)
        wrapped, attributes = op.unwrap(start.attributes)
        result = op.form_of(start.shape).result_of(start.shape)
        parameters = [o.shape for o in start.operands]
        self.wrapped += 1
        made = self._new_computation(f"async_{wrapped.opcode.replace('-', '_')}.{self.wrapped}", parameters, result)
        made.set("execution_thread", execution_thread(start) or MAIN_THREAD)
        number = self._add(made)
        instructions: list[Record] = []
        for place, shape in enumerate(parameters):
            record = new("HloInstructionProto")
            record.set("name", self.names.unique(f"param_{place}"))
            record.set("opcode", "parameter")
            record.values["shape"] = shape_record(shape)
            record.set("parameter_number", place)
            record.set("id", number << 32 | place)
            instructions.append(record)
        made.sub("program_shape").set("parameter_names", [r.str("name") for r in instructions])
        root = new("HloInstructionProto")
        root.set("name", self.names.unique(wrapped.opcode))
        root.set("opcode", wrapped.opcode)
        root.values["shape"] = shape_record(result)
        root.set("id", number << 32 | len(parameters))
        root.set("operand_ids", [number << 32 | n for n in range(len(parameters))])
        self._attributes(root, wrapped, attributes, result, start.operands)
        _describe(root, start, self.payloads)
        made.values["instructions"] = [*instructions, root]
        made.set("root_id", root.int("id"))
        return number


def _annotate(record: Record, instruction: Instruction, payloads: dict[str, int]) -> None:
    """Writes the fields of any instruction, except for references to other instructions."""
    record.values["shape"] = shape_record(instruction.shape)
    if instruction.sharding is not None:
        record.values["sharding"] = sharding_record(instruction.sharding)
    _describe(record, instruction, payloads)


def _describe(record: Record, instruction: Instruction, payloads: dict[str, int]) -> None:
    """Writes the annotations of an instruction; those of a derived start go to the wrapped op, too."""
    if instruction.frontend_attributes:
        record.values["frontend_attributes"] = frontend_attributes_record(instruction.frontend_attributes)
    if instruction.metadata is not None:
        record.values["metadata"] = metadata_record(instruction.metadata.text, payloads)
    for name, text in instruction.other:
        set_other(record, name, text)
    config = instruction.backend_config
    if config is not None:
        text = config.text if isinstance(config, BracedText) else config
        record.set("backend_config", text.encode("utf-8", "surrogateescape"))


def field_bytes(instruction: Instruction, name: str) -> bytes:
    """Returns the writer's encoding of a field of an instruction that is no reference."""
    record = new("HloInstructionProto")
    _annotate(record, instruction, {})
    for attribute in attribute_fields(instruction.op.attributes):
        value = getattr(instruction.attributes, attribute)
        if value is None or isinstance(value, Computation | Literal):
            continue
        if isinstance(value, tuple) and any(isinstance(v, Computation) for v in value):  # pyright: ignore[reportUnknownVariableType]
            continue
        found = codec(instruction.op, attribute)
        if name in found.fields:
            found.write(record, value_text(value))
    value = record.values.get(name)
    return encode(value) if isinstance(value, Record) else b""


def write_record(module: Module) -> Record:
    """Returns the HloModuleProto of a module. Raises ProtoError."""
    return ModuleWriter(module).write()
