"""Bits of field elements, for ops that reinterpret floats as integers and integers as floats.

An integer becomes the element of the float with these bits. Back, an element that came from bits gets these, and a
short number its own bits; any other element gets random, unique bits, which lead back to it. The first assignment of an
element or a pattern of bits stays, on both sides of a proof: so both are functions, whatever the order of their uses. A
type may have fewer patterns than there are elements; then some elements share one, and do not all come back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.graph.op import AnyOp, Compile, Kernel, NotEvaluable, OpCall
from ...ir.ops.numerics import numpy_type
from ...ir.types.element_type import ELEMENT_TYPES, ElementType
from ...ir.types.literal import Array
from ...ir.types.shape import Shape
from .embedding import numbers, stated
from .field import UNDEFINED, ZERO, is_element
from .memo import Memo
from .oracle import Oracle

_ATTEMPTS = 64  # to find a free pattern


def recast(op: AnyOp, call: OpCall[Any], compile: Compile, oracle: Oracle) -> Kernel:
    """The op's own kernel on integers of the same width. Raises NotEvaluable."""
    (operand,), result = call.operands, call.shape
    kernel = op.kernel(replace(call, operands=(_integers(operand),), shape=_integers(result)), compile)

    def run(x: Array) -> Array:
        bits = bits_of(oracle, operand.element, x) if operand.element.is_float else x
        found = kernel(bits)
        return elements_of(oracle, result.element, found) if result.element.is_float else found

    return run


def bits_of(oracle: Oracle, element: ElementType, x: Array) -> Array:
    """The bits of elements that stand for floats of a type."""
    to_bits, to_elements = (oracle.memo(element.name, way) for way in ("bits", "elements"))

    def given(new: Array) -> Array:
        bits = _chosen(oracle, element, new, to_elements)
        to_elements.keep(bits, new)
        return bits

    return to_bits.values(x, given).astype(numpy_type(_unsigned(element)))


def elements_of(oracle: Oracle, element: ElementType, bits: Array) -> Array:
    """The elements that stand for floats with these bits."""
    to_bits, to_elements = (oracle.memo(element.name, way) for way in ("bits", "elements"))

    def true(new: Array) -> Array:
        elements = _true(element, new)
        is_one = _is_one(elements)
        to_bits.keep(elements[is_one], new[is_one])
        return elements

    return to_elements.values(bits.astype(np.uint64), true)


def _chosen(oracle: Oracle, element: ElementType, x: Array, to_elements: Memo) -> Array:
    """Assigns bits to distinct elements, their own where possible: distinct ones, as long as any are left."""
    dtype = numpy_type(element)
    known = numbers(x, dtype)
    bits = known.view(_holder(element)).astype(np.uint64)
    done = ((stated(known) == x) | (x == UNDEFINED)) & to_elements.may_be(bits, x)
    for attempt in range(_ATTEMPTS):
        rest = np.flatnonzero(~done)
        if not rest.size:
            return bits
        tried = _random(oracle, f"bits {attempt} of {element}", x[rest], element.bits)
        free = ~to_elements.has(tried) & ~np.isin(tried, bits[done]) & _is_one(_true(element, tried))
        first = np.unique(tried, return_index=True)[1]
        bits[rest], done[rest[first]] = tried, free[first]
    oracle.exhausted = f"there are more numbers than patterns of bits for {element}"
    return bits


def _random(oracle: Oracle, name: str, x: Array, width: int) -> Array:
    upper = oracle.value(f"{name}, upper", x) << np.uint64(32)
    return (oracle.value(name, x) ^ upper) & np.uint64(2**width - 1)


def _true(element: ElementType, bits: Array) -> Array:
    return stated(bits.astype(_holder(element)).view(numpy_type(element)))


def _is_one(x: Array) -> Array:
    """Whether an element has a unique pattern: zeros and special numbers have several."""
    return is_element(x) & (x != ZERO)


def _integers(shape: Shape) -> Shape:
    if shape.element.is_complex:
        raise NotEvaluable("the bits of complex numbers are not covered")
    return shape.with_element(_unsigned(shape.element)) if shape.element.is_float else shape


def _unsigned(element: ElementType) -> ElementType:
    found = ELEMENT_TYPES.get(f"u{element.bits}")
    if found is None:
        raise NotEvaluable(f"there are no integers as wide as {element}")
    return found


def _holder(element: ElementType) -> np.dtype[Any]:
    """The unsigned integer type as wide as a float in numpy."""
    return np.dtype(f"u{element.byte_size}")
