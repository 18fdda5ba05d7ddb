"""Reads and writes arrays in numpy files.

numpy files have no name for bfloat16, fp8 and the small integers. Such arrays are stored as their bytes, with the
element type in a note: `manifest.json` in a directory, an entry `NAME.type` in an .npz file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np

from ...ir.diagnostics import fail
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, from_numpy
from ...ir.types.literal import Array

MANIFEST = "manifest.json"
_POSITION = re.compile(r"(arr|output)_(\d+)")


@dataclass(frozen=True, slots=True)
class NamedArrays:
    """Arrays by name, in the natural order of the names. `by_position` says that the names carry no meaning: they are
    numpy's own (`arr_0`, ..), or the file was written by Hloom, or has no names.
    """

    arrays: Mapping[str, Array]
    by_position: bool


def read_arrays(path: Path) -> NamedArrays:
    """Reads an .npz file, a directory of .npy files or one .npy file. Raises CompileError if that fails."""
    try:
        if path.is_dir():
            return _read_directory(path)
        if path.suffix == ".npy":
            return NamedArrays({path.name: _load(path)}, True)
        return _read_npz(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, BadZipFile) as error:
        help = "random, zeros, NAME=KIND;.., an .npz file, or a directory of .npy files"
        fail(f"inputs cannot be read from {path}: {_problem(error)}", help=help)


def load_array(path: Path) -> Array:
    """Reads the array of an .npy file. Raises CompileError if that fails."""
    try:
        return _load(path)
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:
        fail(f"an input cannot be read from {path}: {_problem(error)}")


def _problem(error: Exception) -> str:
    """Returns the message of an error, without the number and the path of those of the system, and without numpy's
    advice to unpickle files, which can run any code.
    """
    if "pickle" in str(error):
        return "it is no file of numpy's, or holds Python objects"
    return getattr(error, "strerror", None) or str(error)


def _load(path: Path) -> Array:
    # Mapped, not read: a rank touches only its tiles, and outputs never overwrite a file in place.
    found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ValueError("it holds several arrays; rename it to .npz")
    return cast(Array, found)


def _named(arrays: Mapping[str, Array]) -> NamedArrays:
    """Returns the arrays, by position if the names are numbers from 0 on with the prefix of numpy or Hloom."""
    matches = [_POSITION.fullmatch(name) for name in arrays]
    prefixes = {m[1] for m in matches if m is not None}
    numbers = [int(m[2]) for m in matches if m is not None]
    return NamedArrays(arrays, len(prefixes) == 1 and numbers == list(range(len(arrays))))


def _read_directory(path: Path) -> NamedArrays:
    manifest = path / MANIFEST
    if manifest.exists():
        entries: list[dict[str, Any]] = json.loads(manifest.read_text())["arrays"]
        return NamedArrays({e["file"]: _typed(_load(path / e["file"]), e["type"]) for e in entries}, True)
    files = sorted(path.glob("*.npy"), key=lambda f: natural(f.stem))
    if not files:
        raise ValueError("there is no .npy file")
    return _named({file.stem: _load(file) for file in files})


def _load_archive(path: Path) -> Any:
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise ValueError("it holds one array; rename it to .npy")
    return found


def _read_npz(path: Path) -> NamedArrays:
    with _load_archive(path) as archive:
        names: list[str] = sorted((n for n in archive.files if not _is_note(n, archive.files)), key=natural)
        return _named({
            n: _typed(archive[n], str(archive[f"{n}.type"])) if f"{n}.type" in archive.files else archive[n]
            for n in names
        })


def _is_note(name: str, names: Sequence[str]) -> bool:
    """Returns whether an entry gives the type of another one."""
    return name.endswith(".type") and name.removesuffix(".type") in names


def as_element(array: Array, element: ElementType) -> Array:
    """Restores the element type of an array for which numpy files have no name; numpy reads it as bytes."""
    wanted = element.numpy
    if wanted is None or wanted.isbuiltin != 2 or array.dtype.kind != "V" or array.dtype.itemsize != wanted.itemsize:
        return array
    return array.view(wanted)


def natural(name: str) -> list[tuple[int, str]]:
    """Returns a sort key by which `arg_10` comes after `arg_9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _typed(array: Array, type_name: str) -> Array:
    dtype = ELEMENT_TYPES[type_name].numpy
    if dtype is None:
        raise ValueError(f"there are no arrays of {type_name}")
    return array if array.dtype == dtype else array.view(dtype)


def storable(array: Array) -> Array:
    """Returns the array, or its bytes as unsigned integers of the same width if numpy files have no name for its type.
    """
    if array.dtype.isbuiltin != 2:  # 2: a type that ml_dtypes registered
        return array
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an .npz file that `read_arrays` reads back with the same types."""
    entries: dict[str, Array] = {}
    for name, array in arrays.items():
        entries[name] = storable(array)
        if entries[name].dtype != array.dtype:
            entries[f"{name}.type"] = np.array(from_numpy(array.dtype).name)
    np.savez(path, allow_pickle=False, **entries)
