"""Prints loops and the operations of the loop IR as LLVM IR."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from .builder import number_of
from .loops import LANES, Do, Lane

TYPES = {
    Lane.MASK: "i1", Lane.I8: "i8", Lane.I16: "i16", Lane.I32: "i32", Lane.I64: "i64", Lane.F32: "float",
    Lane.F64: "double",
}  # fmt: skip


def vector(lane: Lane) -> str:
    return f"<{LANES} x {TYPES[lane]}>"


def splat(bits: int, lane: Lane) -> str:
    """Returns the constant with these bits in all lanes. LLVM writes f32 by the bits of the equal f64."""
    if lane is Lane.MASK:
        text = "true" if bits else "false"
    elif lane.is_float:
        text = f"0x{struct.unpack('<Q', struct.pack('<d', number_of(bits, lane)))[0]:016X}"
    else:
        text = str(int(number_of(bits, lane)))
    return f"splat ({TYPES[lane]} {text})"


class Text:
    """Lines of a function, with names for its values, and the declarations that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.slots: list[str] = []
        self.open: list[tuple[str, str, int, int]] = []
        self._names = 0
        self._labels = 0

    def new(self, text: str) -> str:
        """Adds a line that defines a value; returns its name."""
        self._names += 1
        self.lines.append(f"%v{self._names} = {text}")
        return f"%v{self._names}"

    def label(self) -> int:
        self._labels += 1
        return self._labels

    def slot(self, kind: str) -> str:
        name = f"%s{len(self.slots)}"
        self.slots.append(f"{name} = alloca {kind}, align 64")
        return name

    def open_loop(self, count: int, step: int, first: str = "0") -> str:
        """Opens a loop whose counter goes from `first` in steps below `count`; returns the counter."""
        slot, label = self.slot("i64"), self.label()
        self.lines += [f"store i64 {first}, ptr {slot}", f"br label %head{label}", f"head{label}:"]
        counter = self.new(f"load i64, ptr {slot}")
        inside = self.new(f"icmp slt i64 {counter}, {count}")
        self.lines += [f"br i1 {inside}, label %body{label}, label %exit{label}", f"body{label}:"]
        self.open.append((slot, counter, step, label))
        return counter

    def close_loop(self) -> None:
        slot, counter, step, label = self.open.pop()
        after = self.new(f"add i64 {counter}, {step}")
        self.lines += [f"store i64 {after}, ptr {slot}", f"br label %head{label}", f"exit{label}:"]

    def in_all_lanes(self, scalar: str, kind: str) -> str:
        wide = f"<{LANES} x {kind}>"
        first = self.new(f"insertelement {wide} poison, {kind} {scalar}, i32 0")
        return self.new(f"shufflevector {wide} {first}, {wide} poison, <{LANES} x i32> zeroinitializer")


_FLOAT = {Do.ADD: "fadd", Do.SUB: "fsub", Do.MUL: "fmul", Do.DIV: "fdiv"}
_INTEGER = {
    Do.ADD: "add", Do.SUB: "sub", Do.MUL: "mul", Do.SDIV: "sdiv", Do.UDIV: "udiv", Do.SREM: "srem", Do.UREM: "urem",
    Do.AND: "and", Do.OR: "or", Do.XOR: "xor", Do.SHL: "shl", Do.LSHR: "lshr", Do.ASHR: "ashr",
}  # fmt: skip
_FLOAT_ORDER = {Do.EQ: "oeq", Do.NE: "une", Do.LT: "olt", Do.LE: "ole"}
_INTEGER_ORDER = {Do.EQ: "eq", Do.NE: "ne", Do.LT: "slt", Do.LE: "sle", Do.ULT: "ult", Do.ULE: "ule"}
_CASTS = {
    Do.BITCAST: "bitcast", Do.NARROW: "trunc", Do.ZEXT: "zext", Do.SEXT: "sext", Do.FROM_SIGNED: "sitofp",
    Do.FROM_UNSIGNED: "uitofp", Do.TO_SIGNED: "fptosi", Do.TO_UNSIGNED: "fptoui",
}  # fmt: skip
_INTRINSICS = {
    Do.FMA: "fma", Do.SQRT: "sqrt", Do.FLOOR: "floor", Do.CEIL: "ceil", Do.TRUNC: "trunc", Do.RINT: "rint",
}  # fmt: skip
_EXTREMES = {Do.MAXIMUM: "sgt", Do.MINIMUM: "slt", Do.UMAXIMUM: "ugt", Do.UMINIMUM: "ult"}


def operation(text: Text, do: Do, lane: Lane, source: Lane, operands: Sequence[str]) -> str:
    """Adds one operation with results of type `lane`; `source` is the type of its last operand."""
    kind = vector(source)
    if do is Do.SELECT:
        mask, x, y = operands
        return text.new(f"select {vector(Lane.MASK)} {mask}, {kind} {x}, {kind} {y}")
    if do in _INTRINSICS:
        return _intrinsic(text, _INTRINSICS[do], lane, operands)
    if do in _CASTS or do is Do.RESIZE:
        word = _CASTS.get(do) or ("fpext" if lane.bits > source.bits else "fptrunc")
        return text.new(f"{word} {kind} {operands[0]} to {vector(lane)}")
    if do in _EXTREMES:
        return (
            _float_extreme(text, do, lane, *operands) if lane.is_float else _integer_extreme(text, do, lane, operands)
        )
    if lane is Lane.MASK and do in _INTEGER_ORDER:
        word = f"fcmp {_FLOAT_ORDER[do]}" if source.is_float else f"icmp {_INTEGER_ORDER[do]}"
    else:
        word = _FLOAT[do] if lane.is_float else _INTEGER[do]
    return text.new(f"{word} {kind} {', '.join(operands)}")


def _intrinsic(text: Text, word: str, lane: Lane, operands: Sequence[str]) -> str:
    kind, name = vector(lane), f"@llvm.{word}.v{LANES}{lane.text}"
    text.declared.add(f"declare {kind} {name}({', '.join([kind] * len(operands))})")
    return text.new(f"call {kind} {name}({', '.join(f'{kind} {o}' for o in operands)})")


def _integer_extreme(text: Text, do: Do, lane: Lane, operands: Sequence[str]) -> str:
    kind, (x, y) = vector(lane), operands
    first = text.new(f"icmp {_EXTREMES[do]} {kind} {x}, {y}")
    return text.new(f"select {vector(Lane.MASK)} {first}, {kind} {x}, {kind} {y}")


def _float_extreme(text: Text, do: Do, lane: Lane, x: str, y: str) -> str:
    """Emits a maximum or minimum with both orders of the operands, which differ for zeros of both signs: AND of the
    bits gives 0 as the maximum, OR gives -0 as the minimum. With NaN it is the sum, which is that NaN: its sign decides
    the order of elements.
    """
    kind, bits, mask = vector(lane), vector(lane.integer), vector(Lane.MASK)
    order = "ogt" if do is Do.MAXIMUM else "olt"
    chosen: list[str] = []
    for one, other in ((x, y), (y, x)):
        first = text.new(f"fcmp {order} {kind} {one}, {other}")
        value = text.new(f"select {mask} {first}, {kind} {one}, {kind} {other}")
        chosen.append(text.new(f"bitcast {kind} {value} to {bits}"))
    joined = text.new(f"{'and' if do is Do.MAXIMUM else 'or'} {bits} {', '.join(chosen)}")
    unordered = text.new(f"fcmp uno {kind} {x}, {y}")
    total = text.new(f"fadd {kind} {x}, {y}")
    ordered = text.new(f"bitcast {bits} {joined} to {kind}")
    return text.new(f"select {mask} {unordered}, {kind} {total}, {kind} {ordered}")
