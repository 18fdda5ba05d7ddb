"""Reads and writes StableHLO: text, MLIR bytecode, portable artifacts, and what `jax.export` serializes.

The program goes through HloModuleProto, by jaxlib's MLIR (extra `xla`): `mlir` converts. Nothing of jaxlib is imported
before a program in StableHLO is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from ...ir.diagnostics import SourceFile, fail
from ...ir.graph.instruction import Metadata
from ...ir.graph.module import Module
from ...ir.sharding.sharding import UNKNOWN, TupleSharding
from ...ir.strings import quote
from ...ir.tools.aliases import aliases, donors, leaf_number
from ...ir.tools.separate import separate
from ...ir.tools.unfused import unfused
from ...ir.tools.verifier import check
from .. import proto
from ..extras import imported
from ..kinds import BYTECODE
from ..user_lines import locate_in_source
from . import mlir
from .expressible import expressible


def read_text(text: str, filename: str = "<string>", *, verify: bool = True) -> Module:
    """Reads a program in StableHLO. Raises CompileError with all errors, each at its place in `filename`."""
    converted = mlir.to_hlo(text, filename)
    module = _module(converted, filename)
    _locate(module, SourceFile(filename, text), converted.parameters)
    if verify:
        check(module)
    return module


def read_binary(data: bytes, filename: str = "<bytes>", *, verify: bool = True) -> Module:
    """Reads MLIR bytecode, a portable artifact, or the program in a serialized `jax.export.Exported`. Raises
    CompileError.
    """
    if not data.startswith(BYTECODE):
        exported = imported("jax.export", "to read what it serialized")
        imported("flatbuffers", "to read what jax.export serialized")
        try:
            data = exported.deserialize(bytearray(data)).mlir_module_serialized
        except Exception as error:  # of flatbuffers, of any type
            fail(f"{filename} cannot be read as what jax.export serializes: {error}")
    module = _module(mlir.to_hlo(data, filename), filename)
    if verify:
        check(module)
    return module


def write_text(module: Module) -> str:
    """Returns the program in StableHLO. Raises CompileError if StableHLO cannot express it."""
    return mlir.text_of(_converted(module))


def write_bytecode(module: Module) -> bytes:
    """Returns the program as a portable artifact of StableHLO, for `jax.export` and other readers of later versions.
    Raises CompileError if StableHLO cannot express it.
    """
    return mlir.portable_artifact(_converted(module))


def _converted(module: Module) -> Any:
    data = proto.write_module(expressible(separate(unfused(module))))
    counts = {"mhlo.num_partitions": module.num_partitions, "mhlo.num_replicas": module.replica_count}
    return mlir.from_hlo(data, module.name, counts, _donations(module))


def _donations(module: Module) -> dict[int, tuple[str, int | None]]:
    """Returns the attributes of parameters whose memory results may take, if neither is a tuple with parts."""
    parameters, root = module.entry.parameters, module.entry.root.shape
    if any(p.shape.is_tuple for p in parameters):
        return {}
    found: dict[int, tuple[str, int | None]] = {n: ("jax.buffer_donor", None) for n, _ in donors(module.buffer_donor)}
    for result, number, _ in aliases(module.input_output_alias):
        place = leaf_number(root, result)
        if place is not None:
            found[number] = ("tf.aliasing_output", place)
    return {number: attribute for number, attribute in found.items() if number < len(parameters)}


def _module(converted: mlir.Converted, filename: str) -> Module:
    module = proto.read_module(converted.proto, f"<HLO of {filename}>", verify=False)
    module.num_partitions = converted.partitions
    leave_free(module, converted.free_results)
    locate_in_source(module)
    return module


def leave_free(module: Module, results: Collection[int]) -> None:
    """Leaves the sharding of these results to propagation, where HLO would have them replicated (`free_results`)."""
    root = module.entry.root
    if isinstance(root.sharding, TupleSharding):
        elements = enumerate(root.sharding.elements)
        root.sharding = TupleSharding(tuple(UNKNOWN if n in results else given for n, given in elements))


_PLACE = re.compile(r'\bsource_file="-" source_line=(\d+)(?: source_end_line=\d+)?(?: source_column=(\d+))?')


def _locate(module: Module, source: SourceFile, parameters: Sequence[mlir.Place | None]) -> None:
    """Lets instructions without a place of their own in the text's debug information have that in the text itself.
    HLO keeps no places of parameters.
    """
    for parameter, place in zip(module.entry.parameters, parameters, strict=True):
        if place is not None:
            parameter.location = mlir.place_in(source, *place)
    for computation in module:
        for instruction in computation:
            metadata = instruction.metadata
            match = _PLACE.search(metadata.text) if metadata is not None else None
            if match is not None and metadata is not None:
                instruction.location = mlir.place_in(source, int(match[1]), int(match[2] or 1))
                text = metadata.text.replace('source_file="-"', f"source_file={quote(source.name)}")
                instruction.metadata = Metadata(text)
