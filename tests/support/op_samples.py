"""The samples of all ops: `ops/samples_*.py`, each a dictionary from opcodes to texts of modules."""

from __future__ import annotations

import importlib
from pathlib import Path


def all_samples() -> dict[str, list[str]]:
    """The texts of all samples by opcode, in the order of the files."""
    found: dict[str, list[str]] = {}
    for file in sorted((Path(__file__).parents[1] / "ops").glob("samples_*.py")):
        module = importlib.import_module(f"ops.{file.stem}")
        samples: dict[str, list[str]] = module.SAMPLES
        for opcode, texts in samples.items():
            found.setdefault(opcode, []).extend(texts)
        found.setdefault("derived", []).extend(getattr(module, "DERIVED", []))
    return found
