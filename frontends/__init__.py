"""Reads programs from files into a `Module`.

The readers of serialized programs and of StableHLO, and `builder`, which traces Python, are loaded when they are first
needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.late import late_names
from ..ir.user_files import cannot_read, read_bytes, read_stream
from . import hlo_text
from .hlo_text import parse_array_sharding, parse_replica_groups, parse_shape, parse_sharding
from .kinds import function_of, is_mlir_binary, is_mlir_text, may_be_proto
from .snapshot import Snapshot


@checked
def parse(text: str, filename: str = "<string>", *, verify: bool = True) -> Module:
    """Parses HLO text, or StableHLO text (extra `xla`). Raises CompileError with all errors, each at its place in
    `filename`.

    `verify=False` skips the checks of shapes and shardings. Constants that HLO prints as `{...}` have unknown values:
    the module can be partitioned and printed, but not run.
    """
    if is_mlir_text(text):
        from . import stablehlo

        return stablehlo.read_text(text, filename, verify=verify)
    return hlo_text.parse(text, filename, verify=verify)


@checked
def load(path: str | Path, *, verify: bool = True) -> Module:
    """Reads the module in a file: HLO text, a serialized HloModuleProto, HloProto or HloSnapshot; or, with the extra
    `xla`, StableHLO as text, MLIR bytecode, a portable artifact or what `jax.export` serializes. `-` is standard input.
    `FILE.py:FUNCTION` runs a Python file: its function returns `(f, args)`, or `f` traced or lowered, and the module is
    the program that JAX makes of `f`; its `example` are the arrays in `args`.

    Files named `*.pb` are read as serialized HLO; otherwise the contents decide. Raises CompileError, also if the file
    cannot be read. `verify=False` skips the checks of shapes and shardings.
    """
    if (function := function_of(str(path))) is not None:
        from .jax.user_file import from_file

        return from_file(*function)
    name, data = _contents(path)
    if name.endswith(".py"):
        fail(f"{name} is Python", help=f"{name}:FUNCTION names a function in it that returns (f, args)")
    is_named = name.endswith(".pb")
    if is_named or may_be_proto(data):
        from . import proto

        if is_named or proto.is_proto(data):
            return proto.read_module(data, name, verify=verify)
    if is_mlir_binary(data):
        from . import stablehlo

        return stablehlo.read_binary(data, name, verify=verify)
    text = hlo_text.decoded(data, name)
    return parse(text, name, verify=verify)


@checked
def load_snapshot(path: str | Path, *, verify: bool = True) -> Snapshot:
    """Reads the module of an HloSnapshot and the arguments it was run on. Raises CompileError."""
    from . import proto

    name, data = _contents(path)
    return proto.read_snapshot(data, name, verify=verify)


def _contents(path: str | Path) -> tuple[str, bytes]:
    name = "<stdin>" if str(path) == "-" else str(path)
    if name == "<stdin>" and sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] (closed)
        fail("standard input is closed", help="give a file")
    try:
        return name, read_stream(sys.stdin.buffer) if name == "<stdin>" else read_bytes(path)
    except (OSError, ValueError) as error:
        cannot_read(name, error)


__getattr__ = late_names(__name__, {"builder": "frontends.builder"})
__all__ = [
    "Snapshot",
    "load",
    "load_snapshot",
    "parse",
    "parse_array_sharding",
    "parse_replica_groups",
    "parse_shape",
    "parse_sharding",
]
