"""Native kernels against numpy's: element-wise ops of every type, moves, reductions, and fusions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.ir.graph.op import OPS
from hloom.ir.ops.elementwise import Elementwise
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType
from ops import typed_programs
from ops.oracle import random_inputs
from support.loop_kernels import needs_llvm
from support.recorded_kernels import RecordedKernels

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

OPCODES = [
    *[opcode for opcode, op in OPS.items() if isinstance(op, Elementwise)],
    "compare", "select", "clamp", "convert", "copy", "reduce-precision", "reduce", "scatter",
]  # fmt: skip
# Types of which native kernels have no arrays, and ops that are left to numpy for some types.
MISSING = {"f8e8m0fnu", *(e.name for e in ELEMENT_TYPES.values() if e.is_complex)}
FLOATS = {e.name for e in ELEMENT_TYPES.values() if e.is_float} - MISSING
LEFT: dict[str, set[str]] = {"remainder": FLOATS, "complex": {"f32", "f64"}}
# Of both sides together; 3 for others. Numpy computes erf of f64 by a series that ends early.
ULPS = {"logistic": 4, "tanh": 4, "erf": 64, "reduce": 32}


def agree(opcode: str, element: ElementType, have: Array, want: Array) -> bool:
    """Whether values agree: integers to the bit, floats within some units in the last place, NaN and signs alike."""
    if have.dtype != want.dtype or have.shape != want.shape:
        return False
    if element.is_complex:
        return have.tobytes() == want.tobytes()
    if not element.is_float:  # the unused bits of narrow integers may be anything
        return np.array_equal(have.astype(object), want.astype(object))
    x, y = have.astype(np.float64), want.astype(np.float64)
    eps = float(ml_dtypes.finfo(want.dtype).eps) * ULPS.get(opcode, 3)  # pyright: ignore
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    tiny = float(ml_dtypes.finfo(want.dtype).smallest_subnormal) * 4  # pyright: ignore
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= eps * np.abs(y) + tiny
    return bool(np.all(same | near))


def left_to_numpy(opcode: str, programs: Mapping[str, Sequence[typed_programs.Program]]) -> set[str]:
    """Compares the programs of each type. Returns the types that are left to numpy and should not be."""
    left: set[str] = set()
    for name, of_type in programs.items():
        taken = False
        for program in of_type:
            inputs = random_inputs([p.shape for p in program.module.entry.parameters], 0, "special")
            kernels = RecordedKernels()
            have = hloom.evaluate(program.module, inputs, kernels=kernels)
            want = hloom.evaluate(program.module, inputs)
            taken |= any(done for i, done in kernels.native.items() if i.opcode == opcode)
            shapes = list(program.module.entry.root.shape.leaves())
            for x, y, shape in zip(have, want, shapes, strict=True):
                assert agree(opcode, shape.element, x, y), (program.text, x, y)
        left |= set() if taken else {name}
    return left - MISSING - LEFT.get(opcode, set())


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", OPCODES)
def test_ops_agree_with_numpy(opcode: str) -> None:
    """One program of every class of types."""
    programs = {p.element: [p] for p in typed_programs.one_of_each(opcode, MISSING).values()}
    assert left_to_numpy(opcode, programs) < {*programs, ""}


@pytest.mark.slow
@pytest.mark.parametrize("opcode", OPCODES)
def test_ops_of_every_type_agree_with_numpy(opcode: str) -> None:
    assert left_to_numpy(opcode, typed_programs.accepted(opcode)) == set()
