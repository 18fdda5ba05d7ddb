"""Describes the content of a checkpoint: its arrays, and where their tiles are.

Types have the names of HLO, since numpy files have none for bfloat16 and the small types. A tile is a box of its array,
stored densely in row-major order, with one CRC-32 per block of `BLOCK` bytes, so that a reader of a part of the tile
reads and checks that part alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.diagnostics import fail
from ...ir.types.element_type import ELEMENT_TYPES

FILE = "manifest.json"
BLOCK = 1 << 20  # bytes
_VERSION = 1

Box = tuple[tuple[int, int], ...]  # start and end per dimension of the whole array


@dataclass(frozen=True, slots=True)
class SavedTile:
    """A tile of array number `array`: its box, its place in a file, and the checksums of its blocks."""

    array: int
    box: Box
    file: str
    offset: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SavedArray:
    """A whole array: its name, the name of its type, its dimensions, and how it was divided, for people to read."""

    name: str
    type: str
    dims: tuple[int, ...]
    sharding: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the elements."""
        found = ELEMENT_TYPES[self.type].numpy
        assert found is not None  # `parse_manifest` refuses others
        return found


@dataclass(frozen=True)
class Manifest:
    """The content of one checkpoint. `facts` are the caller's own."""

    step: int
    program: str
    arrays: tuple[SavedArray, ...]
    tiles: tuple[SavedTile, ...]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def manifest_text(manifest: Manifest) -> str:
    """Returns the text of a manifest, which ends with its own checksum."""
    content = json.dumps({"format": _VERSION, "block": BLOCK, **asdict(manifest)}, separators=(",", ":"))
    return f"{content}\n{zlib.crc32(content.encode()):08x}\n"


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a step. Raises CompileError if it is missing, damaged, or of another format."""
    path = folder / FILE
    try:
        content, _, checksum = path.read_text().rstrip("\n").rpartition("\n")
        if f"{zlib.crc32(content.encode()):08x}" != checksum:
            fail(f"{path} is damaged: its checksum does not fit")
        found = json.loads(content)
        if (found["format"], found["block"]) != (_VERSION, BLOCK):
            fail(f"{path} is of format {found['format']}, this Hloom reads {_VERSION}")
        arrays = tuple(SavedArray(a["name"], a["type"], tuple(a["dims"]), a["sharding"]) for a in found["arrays"])
        for array in arrays:
            if ELEMENT_TYPES[array.type].numpy is None:
                fail(f"{path}: there are no arrays of {array.type}")
        return Manifest(found["step"], found["program"], arrays, tiles_of(found["tiles"]), found["facts"])
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}")
    except (ValueError, KeyError, TypeError) as error:
        fail(f"{path} is damaged: {type(error).__name__}: {error}")


def tiles_of(values: Sequence[dict[str, Any]]) -> tuple[SavedTile, ...]:
    """Returns tiles from the values of JSON."""
    return tuple(
        SavedTile(v["array"], tuple((a, b) for a, b in v["box"]), v["file"], v["offset"], tuple(v["checksums"]))
        for v in values
    )
