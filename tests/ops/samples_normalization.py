"""Samples of batch normalisation: the feature dimension last, in the middle and alone, f32, f64 and bf16."""

from __future__ import annotations


def _norm(opcode: str, element: str, dims: str, feature: int, epsilon: str = "0.001") -> str:
    vector = f"{element}[{dims.split(',')[feature]}]"
    whole = f"{element}[{dims}]"
    kinds = {"training": [whole, vector, vector], "inference": [whole, *[vector] * 4],
             "grad": [whole, *[vector] * 3, whole]}[opcode]  # fmt: skip
    result = whole if opcode == "inference" else f"({whole}, {vector}, {vector})"
    parameters = "\n".join(f"  p{n} = {kind} parameter({n})" for n, kind in enumerate(kinds))
    operands = ", ".join(f"p{n}" for n in range(len(kinds)))
    return f"""
// inputs: positive
HloModule m
ENTRY e {{
{parameters}
  ROOT r = {result} batch-norm-{opcode}({operands}), epsilon={epsilon}, feature_index={feature}
}}
"""


SAMPLES: dict[str, list[str]] = {
    f"batch-norm-{opcode}": [
        _norm(opcode, "f32", "4,3,5", 2),
        _norm(opcode, "f32", "4,3,5", 1, "1e-05"),
        _norm(opcode, "f64", "2,6", 1),
        _norm(opcode, "bf16", "4,5", 1),
    ]
    for opcode in ("training", "inference", "grad")
}
