"""Adds arrays of bf16 or f16 in machine code, as numpy's ufuncs do: in f32, rounded to nearest, ties to even.

numpy and ml_dtypes convert one number after the other, which takes ten times as long per byte as a sum of f32. What
ranks combine is all that needs it: other sums of narrow numbers are parts of kernels.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Kernel
from ...ir.ops.elementwise import ADD
from ...ir.types.element_type import ELEMENT_TYPES
from .as_ufunc import ufunc
from .compile_llvm import Loaded, hidden, host, is_available, kept_code

_LANES = 16
_QUIET = 0x7FC0  # the bits of a NaN of bf16


def narrow_sum(instruction: Instruction) -> Kernel | None:
    """Returns a function that adds arrays as an addition of scalars of these types does; None for other instructions
    and types, and where there is no machine code.
    """
    shape = instruction.shape
    if instruction.op is not ADD or shape.dims or any(o.shape != shape for o in instruction.operands):
        return None
    name = shape.element.name
    return _made(name) if name in _ADDS and is_available() and _converts(name) else None


def _converts(name: str) -> bool:
    """Whether the processor converts to this type; for bf16 integer operations do."""
    shown = {word[1:] for word in host()[1].split(",") if word.startswith("+")} - set(hidden())
    return name == "bf16" or not shown.isdisjoint(("f16c", "neon"))


@cache
def _made(name: str) -> Any:
    dtype: Any = ELEMENT_TYPES[name].numpy
    bits: Any = np.dtype(np.uint16) if name == "bf16" else dtype  # numpy's table of types has no bf16
    made = ufunc(f"add_{name}", _code(name).address, 2, (bits,), of=bits)

    def add(x: Any, y: Any) -> Any:
        if not isinstance(x, np.ndarray | np.generic) or not isinstance(y, np.ndarray | np.generic):
            return x + y
        return np.asarray(made(x.view(bits), y.view(bits))).view(dtype)

    return add


@cache
def _code(name: str) -> Loaded:
    """Returns the machine code of a sum, which lives as long as the process."""
    return Loaded(kept_code(_text(name)), "add_loop")


def _of(kind: str, lanes: int) -> str:
    return f"<{lanes} x {kind}>" if lanes > 1 else kind


def _same(value: int, kind: str, lanes: int) -> str:
    return f"<{', '.join([f'{kind} {value}'] * lanes)}>" if lanes > 1 else str(value)


def _add_bf16(lanes: int) -> str:
    """Returns the lines that make %sum of the bits %x and %y."""
    short, word, real = (_of(kind, lanes) for kind in ("i16", "i32", "float"))
    high, one, low, sign, quiet = (_same(value, "i32", lanes) for value in (16, 1, 0x7FFF, 0x8000, _QUIET))
    wide = "\n".join(
        f"%{v}0 = zext {short} %{v} to {word}\n%{v}1 = shl {word} %{v}0, {high}\n%{v}2 = bitcast {word} %{v}1 to {real}"
        for v in "xy"
    )
    return f"""{wide}
%s0 = fadd {real} %x2, %y2
%s1 = bitcast {real} %s0 to {word}
%s2 = lshr {word} %s1, {high}
%odd = and {word} %s2, {one}
%half = add {word} %odd, {low}
%s3 = add {word} %s1, %half
%s4 = lshr {word} %s3, {high}
%sign = and {word} %s2, {sign}
%nan = or {word} %sign, {quiet}
%is_nan = fcmp uno {real} %s0, %s0
%s5 = select {_of("i1", lanes)} %is_nan, {word} %nan, {word} %s4
%sum = trunc {word} %s5 to {short}"""


def _add_f16(lanes: int) -> str:
    half, real = _of("half", lanes), _of("float", lanes)
    return f"""%x0 = fpext {half} %x to {real}
%y0 = fpext {half} %y to {real}
%s0 = fadd {real} %x0, %y0
%sum = fptrunc {real} %s0 to {half}"""


_ADDS = {"bf16": ("i16", _add_bf16), "f16": ("half", _add_f16)}


def _part(name: str, lanes: int) -> str:
    """Returns a function that adds so many numbers from two places on, and stores the sums from a third on."""
    kind, add = _ADDS[name]
    numbers = _of(kind, lanes)
    return f"""define internal void @add{lanes}(ptr %from, ptr %and, ptr %to) {{
%x = load {numbers}, ptr %from, align 2
%y = load {numbers}, ptr %and, align 2
{add(lanes)}
store {numbers} %sum, ptr %to, align 2
ret void
}}"""


def _loop(lanes: int, begin: str, end: str, after: str) -> str:
    """Returns a loop that adds so many numbers at a time, and goes on `after` that."""
    places = "\n".join(
        f"%{v}_bytes{lanes} = mul i64 %n{lanes}, %{v}_step\n"
        f"%{v}_at{lanes} = getelementptr i8, ptr %{v}, i64 %{v}_bytes{lanes}" for v in "xyr"
    )  # fmt: skip
    return f"""loop{lanes}:
%n{lanes} = phi i64 {begin}, [%next{lanes}, %body{lanes}]
%more{lanes} = icmp ult i64 %n{lanes}, {end}
br i1 %more{lanes}, label %body{lanes}, label %{after}
body{lanes}:
{places}
call void @add{lanes}(ptr %x_at{lanes}, ptr %y_at{lanes}, ptr %r_at{lanes})
%next{lanes} = add i64 %n{lanes}, {lanes}
br label %loop{lanes}"""


def _text(name: str) -> str:
    """Returns the inner loop of a ufunc: by lanes while arrays are dense and long enough, then one by one."""
    given = "\n".join(
        f"%{v}_place = getelementptr ptr, ptr %arrays, i64 {n}\n%{v} = load ptr, ptr %{v}_place\n"
        f"%{v}_where = getelementptr i64, ptr %steps, i64 {n}\n%{v}_step = load i64, ptr %{v}_where\n"
        f"%{v}_dense = icmp eq i64 %{v}_step, 2"
        for n, v in enumerate("xyr")
    )
    return f"""{_part(name, _LANES)}
{_part(name, 1)}
define void @add_loop(ptr %arrays, ptr %sizes, ptr %steps, ptr %data) {{
entry:
%size = load i64, ptr %sizes
{given}
%xy_dense = and i1 %x_dense, %y_dense
%dense = and i1 %xy_dense, %r_dense
%whole = and i64 %size, {-_LANES}
%by_lanes = select i1 %dense, i64 %whole, i64 0
br label %loop{_LANES}
{_loop(_LANES, "[0, %entry]", "%by_lanes", "loop1")}
{_loop(1, f"[%n{_LANES}, %loop{_LANES}]", "%size", "exit")}
exit:
ret void
}}"""
