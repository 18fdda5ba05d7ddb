"""Tells the kind of a file by its first bytes, before the reader of that kind is loaded."""

from __future__ import annotations

import re

BYTECODE = b"ML\xefR"
"""The first bytes of MLIR bytecode."""

_FUNCTION = re.compile(r"(.*\.py):(\w+)", re.DOTALL)

# Comments and aliases, of attributes and of types, before the first operation, which holds functions.
_MLIR = re.compile(r'(?:\s+|//[^\n]*|[#!][\w.]+ *=[^\n]*)*+(?:"builtin\.module"|module\b|func\.func\b)')


def function_of(path: str) -> tuple[str, str] | None:
    """Returns the Python file and the function of JAX that `FILE.py:FUNCTION` names; None for other paths."""
    found = _FUNCTION.fullmatch(path)
    return (found[1], found[2]) if found is not None and found[2].isidentifier() else None


def is_mlir_text(text: str) -> bool:
    """Returns whether a text is a program in MLIR rather than in HLO."""
    return _MLIR.match(text) is not None and "func" in text


def is_mlir_binary(data: bytes) -> bool:
    """Returns whether data is MLIR bytecode, or a serialized `jax.export.Exported` around some."""
    return data.startswith(BYTECODE) or _is_exported(data)


def may_be_proto(data: bytes) -> bool:
    """Returns whether data may be a serialized module: it begins with the key of a message's first field, of bytes."""
    return data[:1] == b"\n"


def _is_exported(data: bytes) -> bool:
    """Whether the data begins like a flatbuffer, with the offset of its root table, and holds bytecode."""
    offset = int.from_bytes(data[:4], "little")
    return 4 <= offset < min(len(data), 1 << 16) and b"\0" in data[:4] and BYTECODE in data
