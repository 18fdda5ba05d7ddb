"""Reads and writes HLO as protocol buffers (HloModuleProto, HloProto, HloSnapshot) without a protobuf runtime.

    module = read_module(Path("step.pb").read_bytes())
    data = write_module(module)

How to read this package: `wire` and `schema` are the wire format and the tables of fields; `shapes`, `literals`,
`shardings`, `metadata`, `headers` and `attributes` convert single messages to HLO text and back; `reader` and `writer`
convert whole modules. Fields that the tables do not list are preserved unchanged.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ...ir.diagnostics import fail
from ...ir.graph.module import Module
from ...ir.tools.unknown_values import require_values
from ...ir.tools.verifier import check
from ..hlo_text.errors import TextError
from ..hlo_text.shapes import parse_shape
from ..kinds import may_be_proto
from ..snapshot import Snapshot
from .literals import read_literal
from .reader import read_record
from .schema import TABLES
from .shapes import shape_text
from .wire import ProtoError, Record, decode, encode
from .writer import write_record


def read_module(data: bytes, filename: str = "<bytes>", *, verify: bool = True) -> Module:
    """Reads the module in `data`: an HloModuleProto, HloProto or HloSnapshot. Raises CompileError."""
    try:
        return _module(_module_record(data), filename, verify)
    except ProtoError as error:
        _fail(filename, error)


def read_snapshot(data: bytes, filename: str = "<bytes>", *, verify: bool = True) -> Snapshot:
    """Reads the module and the inputs of an HloSnapshot. Raises CompileError."""
    try:
        record = decode(TABLES, "HloSnapshot", data)
        module = _module(record.sub("hlo").sub("hlo_module"), filename, verify)
        arguments = tuple(_value(part) for part in record.subs("arguments"))
        result = _value(record.sub("result")) if "result" in record.values else None
        return Snapshot(module, arguments, result, record.str("execution_platform"))
    except (ProtoError, TextError, ValueError) as error:
        _fail(filename, error)


def write_module(module: Module) -> bytes:
    """Serializes the module as HloModuleProto. Raises CompileError for values that HloModuleProto cannot represent."""
    require_values((instruction for computation in module for instruction in computation), "to serialize the module")
    try:
        return encode(write_record(module))
    except (ProtoError, TextError, ValueError) as error:
        # The last two concern texts that are kept verbatim and parsed only here.
        fail(f"{module.name} cannot be serialized: {error}")



def is_proto(data: bytes) -> bool:
    """Returns whether the data looks like a serialized module rather than text: it begins with a field, not a word."""
    if not may_be_proto(data):
        return False
    try:
        record = _module_record(data)
    except ProtoError:
        # Truncated, or text after an empty line: text contains no bytes that occur only in numbers.
        return any(byte < 9 or 13 < byte < 32 for byte in data[:4096])
    return bool(record.values)


def _module(record: Record, filename: str, verify: bool) -> Module:
    module = read_record(record, filename)
    if verify:
        check(module)
    return module


def _module_record(data: bytes) -> Record:
    """Returns the module in a file of any of the three kinds. The format does not name its kind, so each is tried."""
    for kind, *path in (("HloSnapshot", "hlo", "hlo_module"), ("HloProto", "hlo_module"), ("HloModuleProto",)):
        try:
            record = decode(TABLES, kind, data)
            for name in path:
                record = record.sub(name)
            if _has_instructions(record):
                return record
        except ProtoError:
            continue
    # The error from reading it as a module is the most informative.
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


__all__ = ["is_proto", "read_module", "read_snapshot", "write_module"]
