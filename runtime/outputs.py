"""Writes the results of runs: a folder of `.npy` files with a manifest, complete or not at all; and describes them.

Files are written under temporary names and renamed when all of them are complete, so that a full disk leaves neither
half a file nor a mixture of two runs. `check_outputs` finds out before the run whether the folder is writable.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..ir.diagnostics import Diagnostic, Severity
from ..ir.types.element_type import from_numpy
from ..ir.types.literal import Array
from ..ir.user_files import OutputError
from .fabric.tiles import same_bits
from .inputs.array_files import MANIFEST, storable

_MANY, _SHOWN = 16, 12  # outputs of a short text


def check_outputs(directory: Path) -> None:
    """Creates the folder and tries to write to it. Raises OutputError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"0")
    except OSError as error:
        _refuse(directory, error)


def save_outputs(directory: Path, arrays: Sequence[Array], names: Sequence[str] = ()) -> None:
    """Writes `output_0.npy`, .. and a manifest with their element types, and names if given. Raises OutputError, and
    then leaves the previous files unchanged.
    """
    parts: list[Path] = []

    def part(file: str) -> Path:
        parts.append(directory / f".{file}.part")
        return parts[-1]

    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries: list[dict[str, Any]] = []
        for number, array in enumerate(arrays):
            file = f"output_{number}.npy"
            with part(file).open("wb") as stream:
                np.save(stream, storable(array))
            entries.append({"file": file, "type": from_numpy(array.dtype).name, "dims": list(array.shape)})
        for entry, name in zip(entries, names, strict=False):
            entry["name"] = name
        part(MANIFEST).write_text(json.dumps({"arrays": entries}, indent=1) + "\n")
        for path in parts:
            path.replace(directory / path.name.removeprefix(".").removesuffix(".part"))
    except OSError as error:
        _refuse(directory, error)
    finally:
        for path in parts:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _refuse(directory: Path, error: OSError) -> NoReturn:
    message = f"outputs cannot be written to {directory}: {error.strerror or error}"
    raise OutputError([Diagnostic(Severity.ERROR, message)]) from error


def outputs_text(
    outputs: Sequence[Array], names: Sequence[str], per_device: Sequence[int] = (), short: bool = False
) -> Iterator[str]:
    """Yields one line for each output: number, name, type, dimensions, range. The first dimension of outputs in
    `per_device` counts devices: they get one line per device, unless all are equal. In a `short` text, many outputs are
    the first ones, and a line with the number of others.
    """
    shown = _SHOWN if short and len(outputs) > _MANY else len(outputs)
    for number, (array, name) in enumerate(zip(outputs[:shown], names, strict=False)):
        if number not in per_device:
            yield f"output {number} {name}: {_summary(array)}"
        elif same_bits(array, array[:1]).all():
            yield f"output {number} {name}, alike on {len(array)} devices: {_summary(array[0])}"
        else:
            for device, part in enumerate(array):
                yield f"output {number} {name}, device {device}: {_summary(part)}"
    if shown < len(outputs):
        yield f"{len(outputs) - shown} more outputs: --out DIR writes all, --json prints all"


def outputs_record(outputs: Sequence[Array], names: Sequence[str]) -> list[dict[str, object]]:
    """Returns each output as JSON. Numbers that JSON cannot represent (NaN and infinities) are null."""
    return [
        {"name": name, "type": from_numpy(array.dtype).name, "dims": list(array.shape),
         **{what: number if math.isfinite(number) else None for what, number in _range(array).items()}}
        for array, name in zip(outputs, names, strict=True)
    ]


def _range(array: Array) -> dict[str, float]:
    """Returns least, mean and greatest of real numbers."""
    if array.size == 0 or array.dtype.kind == "c":
        return {}
    values = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a mean may be infinite, or that of both infinities
        mean = float(values.mean())
    return {"min": float(values.min()), "mean": mean, "max": float(values.max())}


def _summary(array: Array) -> str:
    text, found = f"{array.dtype}[{','.join(map(str, array.shape))}]", _range(array)
    shown = [f"{found['min']:.6g}"] if found and array.size == 1 else [f"{k} {v:.6g}" for k, v in found.items()]
    return " ".join((text, *shown))
