"""Adds numbers of devices in another type than that of the arrays.

    before:  g = bf16[..] reduce-scatter(x)
    after:   w = f32[..] convert(x)   s = f32[..] reduce-scatter(w)   g = bf16[..] convert(s)

A wider type loses nothing while the devices add, and sends more; a narrower one sends less, and rounds: k devices add
with an error of at most k units of rounding of the sum of the magnitudes (Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 4.2). What was converted just before, or is converted back just after, is not rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from ml_dtypes import finfo

from ....ir.diagnostics import fail
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import Exchange
from ....ir.graph.monoid import reduction_monoid
from ....ir.ops.collective_groups import CollectiveAttributes
from ....ir.types.element_type import ELEMENT_TYPES, ElementType
from ....ir.types.shape import array
from .base import Edits, MatchingRewrite, RewriteProgram, amount, is_conversion, is_plain_collective
from .groups import device_groups


@dataclass(frozen=True)
class ReduceIn(MatchingRewrite[ElementType]):
    """Sums all-reduces and reduce-scatters of floats in the type `element`."""

    name: ClassVar[str] = "reduce-in"
    stays: ClassVar[str] = "is reduced in its type"
    element: str = "f32"

    def match(self, program: RewriteProgram, instruction: Instruction) -> ElementType | str | None:
        exchange = instruction.op.interface(Exchange)
        reducer: Any = getattr(instruction.attributes, "to_apply", None)
        if exchange is None or not exchange.joins or reducer is None:
            return None
        wanted, own = _float(self.element), instruction.operands[0].shape.element
        if not own.is_float or own is wanted:
            return None
        if not is_plain_collective(instruction):
            return "it has several arrays, or an annotation"
        return wanted if reduction_monoid(reducer) is Monoid.ADD else "it is no sum"

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: ElementType) -> None:
        computation, (operand,) = edits.computation, instruction.operands
        given: Any = instruction.attributes
        attributes = replace(
            given, to_apply=program.reducer(Monoid.ADD, found),
            channel_id=program.fresh_channel(instruction.attributes_as(CollectiveAttributes)),
        )  # fmt: skip
        with computation.at(before=instruction):
            if is_conversion(operand) and operand.operands[0].shape.element is found:
                wide = operand.operands[0]
            else:
                wide = computation.build("convert", operand, shape=array(found, operand.shape.dims))
            shape = array(found, instruction.shape.dims)
            new = computation.add(instruction.op, (wide,), attributes, shape, instruction.name, instruction)
            new.frontend_attributes = instruction.frontend_attributes
            back = computation.build("convert", new, shape=instruction.shape)
        for user in list(instruction.users):
            if is_conversion(user) and user.shape.element is found:
                edits.replace(user, new)
        edits.replace(instruction, back)
        devices = max(map(len, device_groups(instruction, program.module)))
        program.remark(instruction, _effect(instruction, operand.shape.element, found, devices))


def _effect(instruction: Instruction, own: ElementType, wanted: ElementType, devices: int) -> str:
    """Describes the effect of another type: the bound of the error, and the bytes."""
    size = max(instruction.shape.num_elements, instruction.operands[0].shape.num_elements)
    sizes = f"{amount(size * own.byte_size)} become {amount(size * wanted.byte_size)}"
    unit = _rounding(wanted)
    if unit < _rounding(own):
        return f"is summed in {wanted.name}, with less error than in {own.name}: {sizes}"
    bound = devices * unit / (1 - devices * unit) if devices * unit < 1 else float("inf")
    return f"is summed in {wanted.name}: an error of at most {bound:.2g} of the sum of magnitudes; {sizes}"


def _rounding(element: ElementType) -> float:
    """Returns the unit of rounding of a type of floats."""
    return float(cast(Any, finfo(element.numpy)).eps) / 2


def _float(name: str) -> ElementType:
    found = ELEMENT_TYPES.get(name)
    if found is None or not found.is_float:
        fail(f"pass reduce-in cannot sum in {name}", help="element is a type of floats, such as f32 or bf16")
    return found
