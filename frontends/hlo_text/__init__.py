"""Reads HLO text.

    module = parse("HloModule m ...")

How to read this package: `scan` and `cursor` find where tokens and values end; `module_reader`, `header`,
`instruction_reader` and `attribute_reader` read the skeleton; `values`, `shapes`, `literals`, `shardings` and
`replica_groups` parse single values as pure functions of their text, with `hlo.lark` for the irregular ones.
`ir/tools/printer` prints.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from typing import TypeVar

from ...ir.checked_call import checked
from ...ir.diagnostics import CompileError as _CompileError
from ...ir.diagnostics import Diagnostic, Location, Severity, SourceFile, fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.module import Module
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.replica_groups import ReplicaGroups
from ...ir.sharding.sharding import AnySharding, Sharding
from ...ir.tools.verifier import check
from ...ir.types.shape import Shape
from . import replica_groups, shapes, shardings
from .errors import TextError
from .module_reader import ModuleReader

T = TypeVar("T")

BYTE_ORDER_MARK = "\ufeff"
WIDE_MARKS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}


def parse(text: str, filename: str = "<string>", *, verify: bool = True) -> Module:
    """Parses HLO text. Raises CompileError with all errors, each at its place in `filename`.

    `verify=False` skips the checks of shapes and shardings. Constants printed as `{...}` have unknown values: the
    module can be partitioned and printed, but not run.
    """
    source = SourceFile(filename, text.removeprefix(BYTE_ORDER_MARK))
    try:
        source.text.encode()
    except UnicodeEncodeError as error:
        fail("unpaired UTF-16 surrogate", Location(source, error.start, error.end))
    with paused_collector():
        reader = ModuleReader(source)
        module = reader.read()
        if verify:
            check(module, reader.repeats)
    return module


def decoded(data: bytes, name: str) -> str:
    """Returns UTF-8 text. Raises CompileError for other data."""
    wide = next((name for name, mark in WIDE_MARKS.items() if data.startswith(mark)), None)
    if wide is not None:
        fail(f"{name} is {wide} text, UTF-8 is expected", help=f"for example: iconv -f {wide} -t UTF-8")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        readable = data[: error.start].decode()
        source = SourceFile(name, readable)
        place = len(readable)
        fail(f"not UTF-8: byte {data[error.start]:#04x}", Location(source, place, place + 1),
             help="HLO text or a serialized HloModuleProto is expected")


@checked
def parse_sharding(text: str) -> AnySharding:
    """Parses a sharding in any spelling of HLO, for example `{devices=[2,4]<=[8]}`. Raises CompileError."""
    return _value(shardings.parse_sharding, text)


def parse_array_sharding(text: str, mesh: Mapping[str, int] | None = None) -> Sharding:
    """Parses the sharding of an array; with the sizes of a `mesh` also its dimensions alone, `[{'x'}, {}]`. Raises
    CompileError.
    """
    if text.lstrip().startswith("["):
        if mesh is None:
            fail(f"{text} names axes of a mesh", help="give it with --mesh x=2,y=4")
        text = f"{{{Mesh(tuple(mesh.items()))}, {text}}}"
    found = parse_sharding(text)
    if not isinstance(found, Sharding):
        fail(f"{text} is the sharding of a tuple")
    return found


@checked
def parse_shape(text: str) -> Shape:
    """Parses a shape, for example `f32[8,16]{1,0}`. Raises CompileError."""
    return _value(shapes.parse_shape, text)


def parse_replica_groups(text: str) -> ReplicaGroups:
    """Parses replica groups, for example `{{0,1},{2,3}}` or `[2,4]<=[8]`. Raises CompileError."""
    return _value(replica_groups.parse_replica_groups, text)


def _value(reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except (TextError, ValueError) as error:
        place = error if isinstance(error, TextError) else TextError(str(error))
        where = Location(SourceFile("<string>", text), place.start, place.end)
        raise _CompileError([Diagnostic(Severity.ERROR, place.args[0], where, place.help)]) from None


__all__ = ["decoded", "parse", "parse_replica_groups", "parse_shape", "parse_sharding"]
