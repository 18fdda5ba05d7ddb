"""HLO as protocol buffers: HloModuleProto, HloProto and HloSnapshot, in and out, without a protobuf runtime.

    module = read_module(Path("step.pb").read_bytes())
    data = write_module(module)

How to read this package: `wire` and `schema` are the format and the tables of fields; `shapes`, `literals`,
`shardings`, `metadata`, `headers` and `attributes` turn single messages into HLO text and back; `reader` and `writer`
do whole modules. Fields that the tables do not list are carried along untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from ...ir.diagnostics import fail
from ...ir.graph.module import SERIALIZERS, Module
from ...ir.tools.unknown_values import require_values
from ...ir.tools.verifier import check
from ..hlo_text.errors import TextError
from ..hlo_text.shapes import parse_shape
from .literals import read_literal
from .reader import read_record
from .schema import TABLES
from .shapes import shape_text
from .wire import ProtoError, Record, decode, encode
from .writer import write_record


@dataclass(frozen=True)
class Snapshot:
    """An HloSnapshot: a module with the arguments it was run on and what it gave.

    Values are as the evaluator has them: numpy arrays, and tuples of values; `result` is None if it was not kept.
    """

    module: Module
    arguments: tuple[Any, ...]
    result: Any
    platform: str


def read_module(data: bytes, filename: str = "<bytes>", *, verify: bool = True) -> Module:
    """The module that `data` is: an HloModuleProto, HloProto or HloSnapshot. Raises CompileError."""
    try:
        return _module(_module_record(data), filename, verify)
    except ProtoError as error:
        _fail(filename, error)


def read_snapshot(data: bytes, filename: str = "<bytes>", *, verify: bool = True) -> Snapshot:
    """The module and its inputs that an HloSnapshot holds. Raises CompileError."""
    try:
        record = decode(TABLES, "HloSnapshot", data)
        module = _module(record.sub("hlo").sub("hlo_module"), filename, verify)
        arguments = tuple(_value(part) for part in record.subs("arguments"))
        result = _value(record.sub("result")) if "result" in record.values else None
        return Snapshot(module, arguments, result, record.str("execution_platform"))
    except (ProtoError, TextError, ValueError) as error:
        _fail(filename, error)


def write_module(module: Module) -> bytes:
    """The module as HloModuleProto. Raises CompileError for what that has no place for."""
    require_values((instruction for computation in module for instruction in computation), "to serialize the module")
    try:
        return encode(write_record(module))
    except (ProtoError, TextError, ValueError) as error:
        # The last two are about texts that are carried verbatim, and looked into only here.
        fail(f"{module.name} cannot be serialized: {error}")


SERIALIZERS["proto"] = write_module


def is_proto(data: bytes) -> bool:
    """Whether the data looks like a serialized module rather than text: it begins with a field, not a word."""
    if data[:1] != b"\n":
        return False
    try:
        record = _module_record(data)
    except ProtoError:
        # Truncated, or text after an empty line: text has no bytes that only numbers have.
        return any(byte < 9 or 13 < byte < 32 for byte in data[:4096])
    return bool(record.values)


def _module(record: Record, filename: str, verify: bool) -> Module:
    module = read_record(record, filename)
    if verify:
        check(module)
    return module


def _module_record(data: bytes) -> Record:
    """The module in a file of any of the three kinds. Nothing in the format tells them apart but whether it fits."""
    for kind, *path in (("HloSnapshot", "hlo", "hlo_module"), ("HloProto", "hlo_module"), ("HloModuleProto",)):
        try:
            record = decode(TABLES, kind, data)
            for name in path:
                record = record.sub(name)
            if _has_instructions(record):
                return record
        except ProtoError:
            continue
    # What is wrong with it as a module says most.
    record = decode(TABLES, "HloModuleProto", data)
    if not record.all("computations"):
        raise ProtoError("this is no HloModuleProto, HloProto or HloSnapshot with a computation")
    return record


def _has_instructions(module: Record) -> bool:
    first = next(module.subs("computations"), None)
    instruction = next(first.subs("instructions"), None) if first is not None else None
    return instruction is not None and bool(instruction.str("opcode"))


def _value(record: Record) -> Any:
    shape = parse_shape(shape_text(record.values.get("shape", b"")))
    return read_literal(record, shape).value


def _fail(filename: str, error: Exception) -> NoReturn:
    fail(f"{filename}: not a serialized HLO module: {error}")


__all__ = ["Snapshot", "is_proto", "read_module", "read_snapshot", "write_module"]
