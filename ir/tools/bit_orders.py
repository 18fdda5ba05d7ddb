"""Comparisons of the bits of floats as comparisons in their total order.

XLA's compilers write a comparison in the total order as one of integers: the bits, those below zero turned round. All
that jnp.sort makes is of this form after optimizations. A proof knows the order of floats, and nothing of their bits.

    before:  b = s32[] bitcast(x)
             k = s32[] select(compare(b, zero, LT), xor(greatest, b), b), and l likewise of y
             less = pred[] compare(k, l), direction=LT
    after:   less = pred[] compare(x, y), direction=LT, type=TOTALORDER
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module
from ..ops.comparison import CompareAttributes, ComparisonType
from ..ops.structure import moved_constant
from ..types.element_type import Kind
from .pattern import Bindings, P, edited


def without_bit_orders(module: Module) -> Module:
    """Returns a copy that compares floats where a module compares their bits; the module itself if it does not."""
    return edited(module, _COMPARISON, _compare_floats)


def _compare_floats(computation: Computation, old: Instruction, found: Bindings) -> None:
    direction = old.attributes_as(CompareAttributes).direction
    new = computation.build("compare", found["x"], found["y"], shape=old.shape, like=old, before=old,
                            direction=direction, type=ComparisonType.TOTALORDER)  # fmt: skip
    name, keys = old.name, old.operands
    computation.replace_all_uses(old, new)
    computation.remove(old)
    computation.rename(new, name)
    _remove_unused(computation, keys, (found["x"], found["y"]))


def _remove_unused(computation: Computation, values: Sequence[Instruction], kept: Sequence[Instruction]) -> None:
    """Removes values that nothing uses, and what only they used, down to those that are kept."""
    for value in values:
        if not value.users and value.parent is computation and value is not computation.root and value not in kept:
            operands = value.operands
            computation.remove(value)
            _remove_unused(computation, operands, kept)


def _is_zero(i: Instruction) -> bool:
    return _is_everywhere(i, 0)


def _is_greatest(i: Instruction) -> bool:
    return i.shape.element.kind is Kind.SIGNED and _is_everywhere(i, (1 << i.shape.element.bits - 1) - 1)


def _is_everywhere(i: Instruction, number: int) -> bool:
    values = moved_constant(i)
    return values is not None and bool((values == number).all())


def _key(name: str) -> P:
    """Returns the pattern of an integer that orders the float `name` totally."""
    bits = P(("bitcast", "bitcast-convert"), P.any(name).where(_is_float)).where(_has_its_dims).bind(f"bits of {name}")
    is_negative = P("compare", bits, P.any().where(_is_zero), direction="LT")
    return P("select", is_negative, P("xor", P.any().where(_is_greatest), bits).any_order(), bits)


def _is_float(i: Instruction) -> bool:
    return i.shape.is_array and i.shape.element.is_float


def _has_its_dims(bits: Instruction) -> bool:
    return bits.shape.dims == bits.operands[0].shape.dims


_COMPARISON = P("compare", _key("x"), _key("y"))
