"""Numpy's functions as operations of the loop IR: each takes traced values of one type (see `trace`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.errors import NotEvaluable
from ...ir.graph.extremes import MAXIMUM, MINIMUM
from ...ir.types.element_type import PRED, ElementType, Kind, from_numpy
from .builder import Builder
from .functions import EXPANSIONS
from .loops import Do, Function, Lane, Node

Make = Callable[..., Any]
U8 = from_numpy(np.dtype(np.uint8))


def _is_signed(x: Any) -> bool:
    return x.element.kind is Kind.SIGNED


def _plain(do: Do, of_pred: Do | None = None) -> Make:
    """Returns an operation that integers and floats have; truth values have `of_pred`."""

    def make(*operands: Any) -> Any:
        first = operands[0]
        chosen = of_pred if first.element is PRED else do
        if chosen is None:
            raise NotEvaluable(f"native kernels have no {do.value} of pred")
        return first.with_node(first.builder.op(chosen, *[o.node for o in operands]))

    return make


def _signed(signed: Do, unsigned: Do, of_pred: Do | None = None) -> Make:
    """Returns an operation of integers with and without a sign; floats have the former."""

    def make(x: Any, y: Any) -> Any:
        do = of_pred if x.element is PRED else unsigned if x.element.kind is Kind.UNSIGNED else signed
        if do is None:
            raise NotEvaluable(f"native kernels have no {signed.value} of pred")
        return x.with_node(x.builder.op(do, x.node, y.node))

    return make


def _compare(signed: Do, unsigned: Do, swapped: bool = False) -> Make:
    def make(x: Any, y: Any) -> Any:
        x, y = (y, x) if swapped else (x, y)
        if x.element is PRED:
            x, y = x.astype(np.uint8), y.astype(np.uint8)
        do = unsigned if x.element.kind is Kind.UNSIGNED else signed
        return type(x)(x.builder, x.builder.op(do, x.node, y.node), PRED)

    return make


def _float(function: Callable[..., Node], result: ElementType | None = None) -> Make:
    """Returns an operation of floats alone."""

    def make(*operands: Any) -> Any:
        x = operands[0]
        if not x.element.is_float:
            raise NotEvaluable(f"native kernels have no such function of {x.element}")
        node = function(x.builder, *[o.node for o in operands])
        return type(x)(x.builder, node, result or x.element)

    return make


def _called(function: Function) -> Make:
    def call(b: Builder, *x: Node) -> Node:
        if (function, x[0].lane) not in EXPANSIONS:
            raise NotEvaluable(f"native kernels have no {function.value} of {x[0].lane.text}")
        return b.call(function, *x)

    return _float(call)


def _negate(x: Any) -> Any:
    if x.element.is_float:
        return x.with_node(x.builder.negate(x.node))
    return x.with_node(x.builder.op(Do.SUB, x.like(0).node, x.node))


def _absolute(x: Any) -> Any:
    if x.element.is_float:
        return x.with_node(x.builder.abs(x.node))
    if not _is_signed(x):
        return x
    b: Builder = x.builder
    return x.with_node(b.select(b.lt(x.node, 0), _negate(x).node, x.node))


def _sign(x: Any) -> Any:
    b: Builder = x.builder
    if not _is_signed(x):
        raise NotEvaluable(f"native kernels have no sign of {x.element}")
    positive = b.select(b.lt(x.like(0).node, x.node), x.like(1).node, 0)
    return x.with_node(b.select(b.lt(x.node, 0), x.like(-1).node, positive))


def _invert(x: Any) -> Any:
    return x.with_node(x.builder.invert(x.node))


def _shift(signed: Do, unsigned: Do) -> Make:
    """Returns a shift that by the width or more leaves zeros, or copies of the sign."""

    def make(x: Any, y: Any) -> Any:
        b: Builder = x.builder
        width = x.node.lane.bits
        do = signed if _is_signed(x) else unsigned
        inside = b.op(Do.ULT, y.node, width)
        beyond = b.op(do, x.node, width - 1) if do is Do.ASHR else x.like(0).node
        return x.with_node(b.select(inside, b.op(do, x.node, b.op(Do.AND, y.node, width - 1)), beyond))

    return make


def _fmod(x: Any, y: Any) -> Any:
    """Returns the remainder with the sign of x, for divisors other than 0 and -1."""
    if x.element.is_float:
        raise NotEvaluable("native kernels have no remainder of floats")
    return x.with_node(x.builder.op(Do.SREM if _is_signed(x) else Do.UREM, x.node, y.node))


def _floor_divide(x: Any, y: Any) -> Any:
    """Returns the quotient of numbers that divide without a remainder or have no sign."""
    if x.element.is_float:
        raise NotEvaluable("native kernels have no floor division of floats")
    return x.with_node(x.builder.op(Do.SDIV if _is_signed(x) else Do.UDIV, x.node, y.node))


def _bit_count(x: Any) -> Any:
    """Counts bits of numbers without a sign in parallel, in groups of 2, 4 and 8 bits."""
    b, lane = x.builder, x.node.lane
    every = [int(pattern * (lane.bits // 8), 16) for pattern in ("55", "33", "0f", "01")]
    bits = b.sub(x.node, b.op(Do.AND, b.op(Do.LSHR, x.node, 1), every[0]))
    bits = b.add(b.op(Do.AND, bits, every[1]), b.op(Do.AND, b.op(Do.LSHR, bits, 2), every[1]))
    bits = b.op(Do.AND, b.add(bits, b.op(Do.LSHR, bits, 4)), every[2])
    total = b.op(Do.LSHR, b.mul(bits, every[3]), lane.bits - 8)
    return type(x)(b, b.cast(Do.NARROW, total, Lane.I8), U8)


def _do(do: Do) -> Make:
    """Returns an operation of floats."""

    def make(b: Builder, x: Node, *others: Node) -> Node:
        return b.op(do, x, *others)

    return _float(make)


def _is_nan(b: Builder, x: Node) -> Node:
    return b.ne(x, x)


def _is_finite(b: Builder, x: Node) -> Node:
    return b.lt(b.abs(x), math.inf)


def _copysign(b: Builder, x: Node, y: Node) -> Node:
    return b.with_sign(b.abs(x), b.sign_bit(y))


UFUNCS: dict[Any, Make] = {
    np.add: _plain(Do.ADD, Do.OR), np.subtract: _plain(Do.SUB), np.multiply: _plain(Do.MUL, Do.AND),
    np.divide: _do(Do.DIV), np.floor_divide: _floor_divide, np.remainder: _fmod,
    np.fmod: _fmod, np.negative: _negate, np.absolute: _absolute, np.sign: _sign, np.invert: _invert,
    np.bitwise_and: _plain(Do.AND, Do.AND), np.bitwise_or: _plain(Do.OR, Do.OR), np.bitwise_xor: _plain(Do.XOR, Do.XOR),
    np.left_shift: _shift(Do.SHL, Do.SHL), np.right_shift: _shift(Do.ASHR, Do.LSHR), np.bitwise_count: _bit_count,
    **dict.fromkeys((np.maximum, MAXIMUM), _signed(Do.MAXIMUM, Do.UMAXIMUM, Do.OR)),
    **dict.fromkeys((np.minimum, MINIMUM), _signed(Do.MINIMUM, Do.UMINIMUM, Do.AND)),
    np.equal: _compare(Do.EQ, Do.EQ), np.not_equal: _compare(Do.NE, Do.NE), np.less: _compare(Do.LT, Do.ULT),
    np.less_equal: _compare(Do.LE, Do.ULE), np.greater: _compare(Do.LT, Do.ULT, True),
    np.greater_equal: _compare(Do.LE, Do.ULE, True),
    np.isnan: _float(_is_nan, PRED),
    np.isfinite: _float(_is_finite, PRED),
    np.copysign: _float(_copysign), np.sqrt: _do(Do.SQRT),
    np.floor: _do(Do.FLOOR), np.ceil: _do(Do.CEIL),
    np.trunc: _do(Do.TRUNC), np.rint: _do(Do.RINT),
    np.exp: _called(Function.EXP), np.expm1: _called(Function.EXPM1), np.log: _called(Function.LOG),
    np.log1p: _called(Function.LOG1P), np.tanh: _called(Function.TANH), np.sin: _called(Function.SIN),
    np.cos: _called(Function.COS), np.tan: _called(Function.TAN), np.cbrt: _called(Function.CBRT),
    np.arctan2: _called(Function.ATAN2), np.power: _called(Function.POW),
    np.sinh: _called(Function.SINH), np.cosh: _called(Function.COSH), np.arcsinh: _called(Function.ASINH),
    np.arccosh: _called(Function.ACOSH), np.arctanh: _called(Function.ATANH), np.arcsin: _called(Function.ASIN),
    np.arccos: _called(Function.ACOS),
}  # fmt: skip
