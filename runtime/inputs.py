"""Inputs of runs: made up by shape and seed, or read from numpy files.

numpy files have no name for bfloat16, fp8 and the small integers: such arrays are stored as their bytes, and a note
gives the element type: `manifest.json` in a directory, an entry `NAME.type` in an .npz file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..ir.diagnostics import fail
from ..ir.element_type import ELEMENT_TYPES, Kind, from_numpy
from ..ir.shape import UNBOUNDED, Shape
from .limits import too_large

Array = np.ndarray[Any, Any]
MANIFEST = "manifest.json"
KINDS = ("random", "zeros")


def make_inputs(shapes: Sequence[Shape], kind: str = "random", seed: int = 0) -> list[Array]:
    """One array per leaf of the shapes, tokens left out; the same for the same arguments.

    Random floats are normal with deviation 0.5, integers are from 0 to 7 so that most serve as indices.
    """
    if kind not in KINDS:
        fail(f"inputs are {' or '.join(KINDS)}, not {kind}")
    leaves = [leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array]
    generators = np.random.default_rng(seed).spawn(len(leaves))  # an input does not depend on the sizes of others
    return [_make(leaf, kind, generator) for leaf, generator in zip(leaves, generators, strict=True)]


def _make(shape: Shape, kind: str, generator: np.random.Generator) -> Array:
    element = shape.element
    if element.numpy is None or UNBOUNDED in shape.dims:
        fail(f"no input can be made for {shape}")
    problem = too_large(shape)
    if problem:
        fail(f"no input can be made: {problem}")
    if kind == "zeros":
        return np.zeros(shape.dims, element.numpy)
    if element.kind is Kind.PRED:
        return np.asarray(generator.integers(0, 2, shape.dims), element.numpy)
    if element.is_integer:
        top = 1 << min(3, element.bits - (element.kind is Kind.SIGNED))
        return np.asarray(generator.integers(0, top, shape.dims)).astype(element.numpy)
    values = np.asarray(generator.standard_normal(shape.dims)) * 0.5
    if element.is_complex:
        values = values + 0.5j * np.asarray(generator.standard_normal(shape.dims))
    if element.name == "f8e8m0fnu":
        values = np.exp2(np.round(values))  # has powers of two only
    return values.astype(element.numpy)


def read_inputs(path: Path) -> list[Array]:
    """The arrays of an .npz file, a directory of .npy files or one .npy file, in the natural order of their names.

    Raises CompileError if the file cannot be read.
    """
    try:
        if path.is_dir():
            return _read_directory(path)
        if path.suffix == ".npy":
            return [_load(path)]
        return _read_npz(path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:  # whatever a file may hold
        fail(f"inputs cannot be read from {path}: {error}", help="an .npz file, or a directory of .npy files")


def _load(path: Path) -> Array:
    return np.load(path, allow_pickle=False)


def _read_directory(path: Path) -> list[Array]:
    manifest = path / MANIFEST
    if manifest.exists():
        entries: list[dict[str, Any]] = json.loads(manifest.read_text())["arrays"]
        return [_typed(_load(path / entry["file"]), entry["type"]) for entry in entries]
    files = sorted(path.glob("*.npy"), key=lambda f: natural(f.stem))
    if not files:
        raise ValueError("there is no .npy file")
    return [_load(file) for file in files]


def _load_archive(path: Path) -> Any:
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise ValueError("it holds one array; call it .npy")
    return found


def _read_npz(path: Path) -> list[Array]:
    with _load_archive(path) as archive:
        names: list[str] = [n for n in archive.files if not n.endswith(".type")]
        return [
            _typed(archive[n], str(archive[f"{n}.type"])) if f"{n}.type" in archive.files else archive[n]
            for n in sorted(names, key=natural)
        ]


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which `arg_10` comes after `arg_9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _typed(array: Array, type_name: str) -> Array:
    dtype = ELEMENT_TYPES[type_name].numpy
    if dtype is None:
        raise ValueError(f"there are no arrays of {type_name}")
    return array if array.dtype == dtype else array.view(dtype)


def storable(array: Array) -> Array:
    """The array, or its bytes as unsigned integers of the same width if numpy files have no name for its type."""
    if array.dtype.isbuiltin != 2:  # 2: a type that ml_dtypes registered
        return array
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an .npz file that `read_inputs` reads back with the same types."""
    entries: dict[str, Array] = {}
    for name, array in arrays.items():
        entries[name] = storable(array)
        if entries[name].dtype != array.dtype:
            entries[f"{name}.type"] = np.array(from_numpy(array.dtype).name)
    np.savez(path, allow_pickle=False, **entries)
