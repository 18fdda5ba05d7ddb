"""The samples of all ops: `ops/samples_*.py`, each a dictionary from opcodes to texts of modules."""

from __future__ import annotations

import importlib
from pathlib import Path

from hloom.ir.graph.op import OPS
from hloom.ir.ops.elementwise import Elementwise

_PLAIN = 6
_TYPES = 8  # as many more samples of element-wise ops that convert or compare: they differ in pairs of types


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


def few(opcode: str, texts: list[str], count: int = 3) -> list[str]:
    """A few samples of an element-wise op, spread over their types; the first and half of the others of another op."""
    op = OPS.get(opcode)
    if op is None or not op.is_elementwise:
        return texts[:_PLAIN] + texts[_PLAIN::2]
    kept = count if issubclass(type(op), Elementwise) else count * _TYPES
    return texts[:: -(-len(texts) // kept)] if texts else []
