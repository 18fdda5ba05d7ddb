"""What we print of an op is what XLA prints: its attributes, to the letter and in XLA's order.

For every sample of the ops below: XLA reads our text as it reads the original, and where its own print of the op has
attributes, ours has the same.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from hloom.frontends import parse
from ops.test_samples import SAMPLES

OPCODES = [
    "bitcast", "convolution", "rng", "rng-bit-generator", "rng-get-and-update-state", "topk", "fft", "cholesky",
    "triangular-solve", "select-and-scatter", "batch-norm-training", "batch-norm-inference", "batch-norm-grad",
    "dot", "ragged-dot", "scaled-dot", "scan",
    "infeed", "outfeed", "send", "send-done", "recv", "recv-done", "get-dimension-size", "set-dimension-size",
    "dynamic-reshape", "stochastic-convert", "domain",
]  # fmt: skip

_CASES = [
    pytest.param(opcode, text, id=f"{opcode}-{number}")
    for opcode in OPCODES
    for number, text in enumerate(SAMPLES[opcode])
]


def _xla_text(text: str) -> str:
    hlo: Any = importlib.import_module("jaxlib._hlo")
    return hlo.hlo_module_from_text(text).to_string()


def _attributes(text: str, opcode: str) -> list[str]:
    """What follows the operands of each use of the op, without the names of computations, for XLA renames them."""
    found = re.findall(rf" {opcode}\((?:[^()]|\([^()]*\))*\)(.*)$", text, re.MULTILINE)
    return [re.sub(r"%[\w.\-]+", "%", after) for after in found]


@pytest.mark.share(2)
@pytest.mark.parametrize(("opcode", "text"), _CASES)
def test_attributes_print_as_in_xla(opcode: str, text: str) -> None:
    pytest.importorskip("jax")
    ours, theirs = parse(text).to_text(), _xla_text(text)
    assert _xla_text(ours) == theirs
    assert _attributes(ours, opcode) == _attributes(theirs, opcode) != []
