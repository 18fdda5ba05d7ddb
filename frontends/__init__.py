"""Reads programs from files into a `Module`."""

from __future__ import annotations

import sys
from pathlib import Path

from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from . import proto
from .hlo_text import parse, parse_bytes, parse_replica_groups, parse_shape, parse_sharding
from .proto import Snapshot


def load(path: str | Path, *, verify: bool = True) -> Module:
    """Reads the module in a file: HLO text, or a serialized HloModuleProto, HloProto or HloSnapshot. `-` is standard
    input.

    Files named `*.pb` are read as serialized; otherwise the contents decide. Raises CompileError, also if the file
    cannot be read. `verify=False` skips the checks of shapes and shardings.
    """
    name, data = _contents(path)
    if name.endswith(".pb") or proto.is_proto(data):
        return proto.read_module(data, name, verify=verify)
    return parse_bytes(data, name, verify=verify)


def load_snapshot(path: str | Path, *, verify: bool = True) -> Snapshot:
    """Reads the module of an HloSnapshot and the arguments it was run on. Raises CompileError."""
    name, data = _contents(path)
    return proto.read_snapshot(data, name, verify=verify)


def _contents(path: str | Path) -> tuple[str, bytes]:
    name = "<stdin>" if str(path) == "-" else str(path)
    if name == "<stdin>" and sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] (closed)
        fail("standard input is closed", help="give a file")
    try:
        return name, sys.stdin.buffer.read() if name == "<stdin>" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        fail(f"{name or repr(name)} cannot be read: {getattr(error, 'strerror', None) or error}")


__all__ = [
    "Snapshot",
    "load",
    "load_snapshot",
    "parse",
    "parse_replica_groups",
    "parse_shape",
    "parse_sharding",
]
