"""Annotated programs whose communication is compared with XLA's: one per kind of op and division, and models.

The `.hlo` files beside this one hold cases: `// CASE name`, then computations. The header (eight devices) and the
computations in `SHARED` that a case mentions are added. Parameters and results are annotated, so that every
partitioner begins and ends with the same tiles. `models` makes larger programs with JAX.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

DEVICES = 8
HERE = Path(__file__).parent
FILES = ("contractions", "windows", "shaping", "indexed", "control", "uneven", "single")

_BINARY = "{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = {result}[] {op}\n}}\n"
SHARED = {
    "add": _BINARY.format(name="add", result="f32", op="add(a, b)"),
    "max": _BINARY.format(name="max", result="f32", op="maximum(a, b)"),
    "ge": _BINARY.format(name="ge", result="pred", op="compare(a, b), direction=GE"),
    "lt": _BINARY.format(name="lt", result="pred", op="compare(a, b), direction=LT"),
}


@cache
def programs() -> dict[str, str]:
    """The cases of all files, by name, as complete HLO text."""
    found: dict[str, str] = {}
    for file in FILES:
        parts = re.split(r"^// CASE (\w+)\n", (HERE / f"{file}.hlo").read_text(), flags=re.MULTILINE)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            assert name not in found, f"two cases are called {name}"
            found[name] = _complete(name, body)
    return found


def _complete(name: str, body: str) -> str:
    wanted = dict.fromkeys(re.findall(r"(?:to_apply|select|scatter)=(\w+)", body))
    shared = "".join(SHARED[w] for w in wanted if w in SHARED)
    return f"HloModule {name}, num_partitions={DEVICES}\n\n{shared}{body}"
