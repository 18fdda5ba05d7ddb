"""Turns ops of mixed precision into ops of one type between conversions.

    before:  s = f32[8] add(a, b)                         -- b is bf16
    after:   c = f32[8] convert(b)
             s = f32[8] add(a, c)

Local forms use ops whose operands have one type. `ir.tools.mixed_precision` defines the meaning of such programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import floats_of
from ...ir.graph.module import Module
from ...ir.tools.mixed_precision import computed, float_types
from ...ir.types.shape import Shape
from ..base import Pass, PassContext
from .rewriting import rewrite


@dataclass(frozen=True)
class UniformPrecision(Pass):
    """Makes the conversions of ops of mixed precision explicit."""

    name: ClassVar[str] = "uniform-precision"

    def run(self, module: Module, context: PassContext) -> bool:
        shapes = [shape for computation in module for shape in computation.shapes()]
        is_mixed = len(float_types(shapes)) > 1  # else only products that declare another type are left
        return rewrite(module, _write_out, lambda op: is_mixed or floats_of(op).converts_result)


def _write_out(computation: Computation, old: Instruction) -> Instruction | None:
    shapes = computed(old)
    if shapes is None:
        return None
    operands = [_converted(computation, o, s, old) for o, s in zip(old.operands, shapes[0], strict=True)]
    made = computation.add(old.op, operands, old.attributes, shapes[1], like=old)
    made.sharding, made.shardy = old.sharding, old.shardy
    made.frontend_attributes = old.frontend_attributes
    return _converted(computation, made, old.shape, old)


def _converted(computation: Computation, value: Instruction, shape: Shape, like: Instruction) -> Instruction:
    """Converts the value to this shape's types; returns the value itself if it has them."""
    if value.shape.compatible(shape):
        return value
    if not shape.is_tuple:
        return computation.build("convert", value, shape=shape, like=like)
    parts = [
        _converted(computation, computation.build("get-tuple-element", value, index=n), part, like)
        for n, part in enumerate(shape.elements)
    ]
    return computation.build("tuple", *parts, shape=shape, like=like)
