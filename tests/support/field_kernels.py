"""A kernel provider whose values are not numbers of the program's types: floats are elements of a finite field."""

from __future__ import annotations

from typing import Any

import numpy as np
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Compile, Kernel, NotEvaluable
from hloom.ir.ops.structure import ConstantAttributes
from hloom.ir.types.element_type import ElementType
from hloom.runtime import NumpyKernels

Array = np.ndarray[Any, Any]
PRIME = (1 << 31) - 1

# Its rows divided, so that the sum over them is an all-reduce, and the slice gets rows from the next device or zeros.
PROGRAM = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}  w = f32[6,4] parameter(1)
  y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,4] negate(y)  zero = f32[] constant(0)  s = f32[4] reduce(z, zero), dimensions={0}, to_apply=add
  low = f32[7,6] slice(x), slice={[1:8], [0:6]}
  ROOT t = (f32[4], f32[7,6]) tuple(s, low) }"""


def inputs() -> list[Array]:
    """Field elements for the parameters of the program."""
    generator = np.random.default_rng(1)
    return [generator.integers(0, PRIME, size).astype(np.uint64) for size in ((8, 6), (6, 4))]


def _add(a: Array, b: Array) -> Array:
    return (a + b) % PRIME


def _negate(a: Array) -> Array:
    return (PRIME - a) % PRIME


def _dot(a: Array, b: Array) -> Array:
    return (((a[:, :, None] * b[None]) % PRIME).sum(1) % PRIME).astype(np.uint64)


def _sum(a: Array, zero: Array) -> Array:
    return (a.sum(0) + zero) % PRIME


_MEANING: dict[str, Kernel] = {"add": _add, "negate": _negate, "dot": _dot, "reduce": _sum}


class FieldKernels(NumpyKernels):
    """Arithmetic modulo a prime, in 64-bit integers; ops without a meaning there must only move elements."""

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        if not any(leaf.element.is_float for leaf in instruction.shape.leaves()):
            return None
        if instruction.opcode == "tanh":
            raise NotEvaluable("tanh has no meaning in a field")
        attributes = instruction.attributes
        if isinstance(attributes, ConstantAttributes):
            value = np.asarray(attributes.literal.array, np.uint64)
            return lambda: value
        return _MEANING.get(instruction.opcode)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return np.dtype(np.uint64) if element.is_float else element.numpy
