"""Element types in lanes: the lane type of each element type, and its loads, stores and conversions.

Truth values are masks in lanes and bytes in memory. Numbers narrower than a byte have a byte each. Floats of at most 16
bits are held as f32 (see `narrow`).
"""

from __future__ import annotations

from ...ir.errors import NotEvaluable
from ...ir.types.element_type import PRED, ElementType, Kind
from .builder import Builder
from .loops import FLOATS, INTEGERS, Do, Lane, Node
from .narrow import NARROW, rounded_to_odd


def memory(element: ElementType) -> Lane:
    """Returns the type of array elements. Raises NotEvaluable for types that kernels do not have."""
    if element.is_float and element.bits >= 32:
        return FLOATS[element.bits]
    if element is PRED or element.is_integer:
        return INTEGERS[8 * element.byte_size]
    if element.name in NARROW:
        return INTEGERS[8 * element.byte_size]
    raise NotEvaluable(f"native kernels have no {element}")


def register(element: ElementType) -> Lane:
    """Returns the type of lanes that hold elements. Raises NotEvaluable like `memory`."""
    lane = memory(element)
    return Lane.MASK if element is PRED else Lane.F32 if element.is_float and element.bits < 32 else lane


def from_memory(b: Builder, x: Node, element: ElementType) -> Node:
    """Converts loaded elements to their lane type."""
    if element is PRED:
        return b.ne(x, 0)
    if element.is_float and element.bits < 32:
        return NARROW[element.name].load(b, x)
    return wrapped(b, x, element)


def to_memory(b: Builder, x: Node, element: ElementType) -> Node:
    """Converts lanes to their type in memory."""
    if element is PRED:
        return b.cast(Do.ZEXT, x, Lane.I8)
    if element.is_float and element.bits < 32:
        return NARROW[element.name].store(b, x)
    return x


def wrapped(b: Builder, x: Node, element: ElementType) -> Node:
    """Wraps integers to the width of their type, where lanes are wider."""
    spare = x.lane.bits - element.bits
    if not element.is_integer or not spare:
        return x
    return b.op(Do.ASHR if element.kind is Kind.SIGNED else Do.LSHR, b.op(Do.SHL, x, spare), spare)


def converted(b: Builder, x: Node, source: ElementType, target: ElementType) -> Node:
    """Converts numbers exactly, or as numpy rounds or wraps them: floats to nearest, integers modulo 2^n."""
    if source is target:
        return x
    lane = register(target)
    if target is PRED:
        return b.ne(x, 0)
    if target.is_integer:
        return wrapped(b, _to_integer(b, x, source, target, lane), target)
    # Numpy converts f64 to f16 at once, and to others by way of f32.
    x = rounded_to_odd(b, x) if target.name == "f16" and x.lane is Lane.F64 else _to_float(b, x, source, lane)
    return NARROW[target.name].round(b, x) if target.bits < 32 else x


def _to_integer(b: Builder, x: Node, source: ElementType, target: ElementType, lane: Lane) -> Node:
    if source is PRED:
        return b.cast(Do.ZEXT, x, lane)
    if source.is_integer:
        extend = Do.SEXT if source.kind is Kind.SIGNED else Do.ZEXT
        return b.cast(Do.NARROW if lane.bits < x.lane.bits else extend, x, lane)
    return b.cast(Do.TO_SIGNED if target.kind is Kind.SIGNED else Do.TO_UNSIGNED, x, lane)


def _to_float(b: Builder, x: Node, source: ElementType, lane: Lane) -> Node:
    if source is PRED:
        return b.make(Do.FROM_UNSIGNED, lane, b.cast(Do.ZEXT, x, Lane.I32))
    if source.is_integer:
        return b.make(Do.FROM_SIGNED if source.kind is Kind.SIGNED else Do.FROM_UNSIGNED, lane, x)
    return b.cast(Do.RESIZE, x, lane)
