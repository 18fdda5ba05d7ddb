"""Machine code that runs tables of native steps, so that a step costs a few nanoseconds, and control flow over tables,
with copies of arrays and in-place updates of slices.

All functions take the address of a block of 64-bit words. A table is an array of pairs of such words: a function's
address, and that of its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from .compile_llvm import Loaded, kept_code
from .products.assembly import Assembly
from .run_control import control_flow

RUN = """
define void @run(ptr %table) {
entry:
  %count = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  br label %head
head:
  %n = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %body, label %exit
body:
  %at = shl i64 %n, 1
  %pair = getelementptr i64, ptr %first, i64 %at
  %function = load ptr, ptr %pair
  %second = getelementptr i64, ptr %pair, i64 1
  %block = load ptr, ptr %second
  call void %function(ptr %block)
  %next = add i64 %n, 1
  br label %head
exit:
  ret void
}
"""


@cache
def table_loop() -> Loaded:
    """Returns the function that runs a table. It takes the table's address; the first word counts the pairs."""
    return Loaded(kept_code(RUN), "run")


SIGNED, UNSIGNED, LONG = range(3)  # how an index is stored: as s32, u32, or in 64 bits
INDICES = {np.dtype(np.int32): SIGNED, np.dtype(np.uint32): UNSIGNED, np.dtype(np.int64): LONG}


@cache
def code(name: str) -> Loaded:
    """Returns a function: `sequence`, `loop`, `choose`, `copy` or `put`."""
    return Loaded(kept_code(_text()), name)


def put_words(
    part: Sequence[int],
    itemsize: int,
    strides: tuple[Sequence[int], Sequence[int]],
    indices: Sequence[tuple[int, int, int, int]] = (),
) -> list[int]:
    """Returns the arguments of `put` that follow the two addresses, of a part and of its destination. The part has
    these sizes, and both have these strides, in bytes. `indices` have, per dimension, the address of the start index of
    the part, its storage type, its maximum, and the stride; start indices are clamped.
    """
    inner, rank = itemsize, len(part)
    while rank and (part[rank - 1] == 1 or all(s[rank - 1] == inner for s in strides)):
        rank -= 1
        inner *= part[rank]
    loops = [w for n, a, b in zip(part[:rank], *(s[:rank] for s in strides), strict=True) for w in (n, a, b)]
    return [len(indices), rank, inner, *(w for index in indices for w in index), *loops]


@cache
def _text() -> str:
    declared = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
    declared += [f"declare i64 @llvm.{verb}.i64(i64, i64)" for verb in ("smin", "smax")]
    return "\n".join([*declared, RUN, *control_flow(), _copy(), _put_nest(), _put()])


def _copy() -> str:
    """Words: source, target, bytes."""
    f = Assembly("define void @copy(ptr %block)")
    source, target = (f.value(f"load ptr, ptr {f.at('%block', 8 * n)}") for n in range(2))
    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {f.word('%block', 2)}, i1 false)")
    return f.text()


def _put_nest() -> str:
    """Copies pieces of a part, in loops whose words are their size and the strides of both arrays."""
    f = Assembly("define internal void @put_nest(ptr %a, ptr %b, ptr %loops, i64 %count, i64 %bytes)")
    here = f.value("icmp eq i64 %count, 0")
    with f.when(here):
        f.line("call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %a, i64 %bytes, i1 false)")
    with f.when(f.nor(here)):
        size, a, b = (f.word("%loops", n) for n in range(3))
        inside, left = f.at("%loops", 24), f.integer("sub", "%count", 1)
        with f.loop(size) as i:
            x, y = f.step("%a", i, a), f.step("%b", i, b)
            f.line(f"call void @put_nest(ptr {x}, ptr {y}, ptr {inside}, i64 {left}, i64 %bytes)")
    return f.text()


def _put() -> str:
    """Words: the addresses of the part and the whole, then `put_words`."""
    f = Assembly("define void @put(ptr %block)")
    place, index = f.value("alloca i64"), f.value("alloca i64")
    part, whole = (f.value(f"load ptr, ptr {f.at('%block', 8 * n)}") for n in range(2))
    starts, loops, size = (f.word("%block", n) for n in (2, 3, 4))
    f.line(f"store i64 0, ptr {place}")
    with f.loop(starts) as n:
        words = f.step(f.at("%block", 40), n, "32")
        source = f.value(f"load ptr, ptr {words}")
        kind, limit, stride = (f.word(words, i) for i in (1, 2, 3))
        for number, (stored, extend) in enumerate((("i32", "sext"), ("i32", "zext"), ("i64", ""))):
            with f.when(f.value(f"icmp eq i64 {kind}, {number}")):
                x = f.value(f"load {stored}, ptr {source}")
                f.line(f"store i64 {f.value(f'{extend} {stored} {x} to i64') if extend else x}, ptr {index}")
        low = f.value(f"call i64 @llvm.smin.i64(i64 {f.value(f'load i64, ptr {index}')}, i64 {limit})")
        at = f.value(f"call i64 @llvm.smax.i64(i64 {low}, i64 0)")
        moved = f.integer("add", f.value(f"load i64, ptr {place}"), f.integer("mul", at, stride))
        f.line(f"store i64 {moved}, ptr {place}")
    target = f.at(whole, f.value(f"load i64, ptr {place}"))
    rest = f.step(f.at("%block", 40), starts, "32")
    f.line(f"call void @put_nest(ptr {part}, ptr {target}, ptr {rest}, i64 {loops}, i64 {size})")
    return f.text()
