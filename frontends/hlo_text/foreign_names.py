"""Suggests the opcode or element type that a word means: misspelt, cut short, or of another language.

The tables hold words of numpy, JAX and StableHLO that are spelt otherwise than those of HLO; similar ones are found.
"""

from __future__ import annotations

import re

from ...ir.graph.op import OPS
from ...ir.types.element_type import ELEMENT_TYPES
from .errors import did_you_mean

_MOST = 3  # opcodes that begin alike, to be listed

_OPCODES = {
    "matmul": "dot", "einsum": "dot", "cast": "convert", "where": "select", "sum": "reduce", "prod": "reduce",
    "mean": "reduce", "relu": "maximum", "sigmoid": "logistic", "squeeze": "reshape", "expand-dims": "reshape",
    "gte": "get-tuple-element", "permute": "transpose", "flip": "reverse", "arange": "iota", "mod": "remainder",
    "psum": "all-reduce", "psum-scatter": "reduce-scatter", "ppermute": "collective-permute",
}  # fmt: skip
_TYPES = {"bool": "pred", "i1": "pred", "float": "f32", "double": "f64", "half": "f16", "int": "s32", "long": "s64"}
_PREFIXES = {"i": "s", "int": "s", "ui": "u", "uint": "u", "fp": "f", "float": "f", "bfloat": "bf", "complex": "c"}
_SIZED = re.compile(r"([a-z]+)(\d\w*)")


def opcode_help(word: str) -> str:
    """Returns help for a word that stands where an opcode is expected."""
    plain = word.lower().replace("_", "-")
    meant = plain if plain in OPS else _OPCODES.get(plain)
    begin = [opcode for opcode in OPS if opcode.startswith(plain)] if len(plain) > 1 else []
    near = [meant] if meant else sorted(begin, key=len) if len(begin) <= _MOST else []
    listed = "docs/ops.md lists all opcodes"
    if not near:
        return did_you_mean(word, OPS, listed) or listed
    return f"did you mean {' or '.join(map(repr, near))}? {listed}"


def type_help(word: str) -> str | None:
    """Returns help for a word that stands where an element type is expected; None if none is similar."""
    plain = word.lower()
    sized = _SIZED.fullmatch(plain)
    name = _TYPES.get(plain) or (_PREFIXES.get(sized[1], sized[1]) + sized[2] if sized else plain)
    if name in ELEMENT_TYPES:
        return f"did you mean '{name}'?"
    alike = [t for t in ELEMENT_TYPES if t.startswith(name)]
    return f"one of {', '.join(alike)}" if len(name) > 1 and alike else did_you_mean(word, ELEMENT_TYPES)
