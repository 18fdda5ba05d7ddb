"""Machine code that puts an array into a part of another one, at start indices that other steps compute.

Arrays may have any strides. Runs of bytes that are contiguous in both arrays are copied at once; where the part repeats
a run, as a broadcast array does, the copies are copied, twice as many each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.ops.slicing import DynamicUpdateSlice, is_index_vector
from .compile_llvm import Loaded, kept_code
from .products.assembly import Assembly
from .step import NativeStep, StridedLayout

_KINDS: dict[np.dtype[Any], int] = {np.dtype(np.int32): 0, np.dtype(np.uint32): 1, np.dtype(np.int64): 2}
_EXTENDED = (("i32", "sext"), ("i32", "zext"), ("i64", ""))  # how an index of each kind is stored and read
WIDTHS = (1, 2, 4, 8)  # bytes of runs that are moved as words, without a call
_HEAD = 3  # words before those of the indices
_OF_INDEX = 3  # words of an index
_COPY = "call void @llvm.memcpy.p0.p0.i64(ptr {}, ptr {}, i64 {}, i1 false)"
_DECLARED = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
             *(f"declare i64 @llvm.{verb}.i64(i64, i64)" for verb in ("smin", "smax"))]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartIndex:
    """The start index of a slice along a dimension: element `element` of operand number `operand`, which is stored as
    `kind`. It is clamped to 0..limit.
    """

    dim: int
    operand: int
    element: int
    kind: int
    limit: int


def start_indices(instruction: Instruction) -> list[StartIndex] | None:
    """Returns the start indices of the slice that an op writes, without those that are always 0; None for other ops,
    and for types of indices that machine code does not read.
    """
    if not isinstance(instruction.op, DynamicUpdateSlice):
        return None
    whole, part, *starts = (operand.shape for operand in instruction.operands)
    is_vector, found = is_index_vector(starts), list[StartIndex]()
    for dim, (size, fewer) in enumerate(zip(whole.dims, part.dims, strict=True)):
        operand = 0 if is_vector else dim
        dtype = starts[operand].element.numpy
        kind = None if dtype is None else _KINDS.get(dtype)
        if kind is None:
            return None
        if size > fewer:
            found.append(StartIndex(dim, 2 + operand, dim if is_vector else 0, kind, size - fewer))
    return found


def put_step(
    part: StridedLayout, whole: StridedLayout, itemsize: int, starts: Sequence[StartIndex] = ()
) -> NativeStep:
    """Returns the machine code that puts a part into an array of these layouts, whose elements have `itemsize` bytes.
    Its arrays are the part, the whole, and the element of each start index.
    """
    strides = [tuple(itemsize * stride for stride in layout.strides) for layout in (part, whole)]
    words = put_words(part.dims, itemsize, (strides[0], strides[1]), starts)
    return NativeStep(put_code(len(starts)).address, words=tuple(words), owner=put_code(len(starts)))


def put_words(
    part: Sequence[int], itemsize: int, strides: tuple[Sequence[int], Sequence[int]], starts: Sequence[StartIndex] = ()
) -> list[int]:
    """Returns the arguments of `put` after the addresses of a part, its destination, and the start indices. The part
    has these sizes, and both have these strides, in bytes.
    """
    run, rank = itemsize, len(part)
    while rank and (part[rank - 1] == 1 or all(s[rank - 1] == run for s in strides)):
        rank -= 1
        run *= part[rank]
    filled = run
    while rank and (part[rank - 1] == 1 or (strides[0][rank - 1] == 0 and strides[1][rank - 1] == filled)):
        rank -= 1
        filled *= part[rank]
    loops = _merged(zip(part[:rank], *(s[:rank] for s in strides), strict=True))
    indices = (w for s in starts for w in (s.kind, s.limit, strides[1][s.dim]))
    return [len(loops), run, filled, *indices, *(w for loop in loops for w in loop)]


def put_runs(part: StridedLayout, whole: StridedLayout) -> tuple[int, int]:
    """Returns the elements in each run that `put` copies at once, and the number of runs."""
    _, run, filled, *_ = put_words(part.dims, 1, (part.strides, whole.strides))
    return run, math.prod(part.dims) // filled


def _merged(loops: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Returns loops of a size and two strides, without those of one trip, and with those joined that are one loop."""
    found = list[tuple[int, int, int]]()
    for size, a, b in loops:
        if found and (found[-1][1], found[-1][2]) == (size * a, size * b):
            found[-1] = found[-1][0] * size, a, b
        elif size > 1:
            found.append((size, a, b))
    return found


@cache
def put_code(starts: int) -> Loaded:
    """Returns the function `put` for so many start indices."""
    return Loaded(kept_code("\n".join([*_DECLARED, _nest(), _put(starts)])), "put")


def _nest() -> str:
    """Copies runs of a part, in loops whose words are their size and the strides of both arrays. A run is repeated
    until it fills `%filled` bytes. The innermost loop over words moves these itself.
    """
    f = Assembly("define internal void @nest(ptr %a, ptr %b, ptr %loops, i64 %count, i64 %run, i64 %filled)")
    done, going = f.value("alloca i64"), f.value("alloca i1")
    here = f.value("icmp eq i64 %count, 0")
    with f.when(here):
        f.line(_COPY.format("%b", "%a", "%run"))
        f.line(f"store i64 %run, ptr {done}")
        f.line(f"store i1 {f.value('icmp slt i64 %run, %filled')}, ptr {going}")
        with f.while_true(going):
            sofar = f.value(f"load i64, ptr {done}")
            more = f.value(f"call i64 @llvm.smin.i64(i64 {sofar}, i64 {f.integer('sub', '%filled', sofar)})")
            f.line(_COPY.format(f.at("%b", sofar), "%b", more))
            after = f.integer("add", sofar, more)
            f.line(f"store i64 {after}, ptr {done}")
            f.line(f"store i1 {f.value(f'icmp slt i64 {after}, %filled')}, ptr {going}")
    size, a, b = (f.word("%loops", n) for n in range(3))
    are_words = f.both(f.value("icmp eq i64 %count, 1"), f.value("icmp eq i64 %run, %filled"))
    is_done = here
    for width in WIDTHS:
        is_word = f.both(are_words, f.value(f"icmp eq i64 %run, {width}"))
        is_done = f.value(f"or i1 {is_done}, {is_word}")
        with f.when(is_word), f.loop(size) as i:
            word = f.value(f"load i{8 * width}, ptr {f.step('%a', i, a)}, align 1")
            f.line(f"store i{8 * width} {word}, ptr {f.step('%b', i, b)}, align 1")
    with f.when(f.nor(is_done)):
        inside, left = f.at("%loops", 24), f.integer("sub", "%count", 1)
        with f.loop(size) as i:
            x, y = f.step("%a", i, a), f.step("%b", i, b)
            f.line(f"call void @nest(ptr {x}, ptr {y}, ptr {inside}, i64 {left}, i64 %run, i64 %filled)")
    return f.text()


def _put(starts: int) -> str:
    """Words: the addresses of the part, the whole and the start indices, then `put_words`."""
    f = Assembly("define void @put(ptr %block)")
    place, index = f.value("alloca i64"), f.value("alloca i64")
    part, whole, *sources = (f.value(f"load ptr, ptr {f.at('%block', 8 * n)}") for n in range(2 + starts))
    words = f.at("%block", 8 * (2 + starts))
    count, run, filled = (f.word(words, n) for n in range(_HEAD))
    f.line(f"store i64 0, ptr {place}")
    for n, source in enumerate(sources):
        kind, limit, stride = (f.word(words, _HEAD + _OF_INDEX * n + i) for i in range(_OF_INDEX))
        for number, (stored, extend) in enumerate(_EXTENDED):
            with f.when(f.value(f"icmp eq i64 {kind}, {number}")):
                x = f.value(f"load {stored}, ptr {source}")
                f.line(f"store i64 {f.value(f'{extend} {stored} {x} to i64') if extend else x}, ptr {index}")
        low = f.value(f"call i64 @llvm.smin.i64(i64 {f.value(f'load i64, ptr {index}')}, i64 {limit})")
        at = f.value(f"call i64 @llvm.smax.i64(i64 {low}, i64 0)")
        moved = f.integer("add", f.value(f"load i64, ptr {place}"), f.integer("mul", at, stride))
        f.line(f"store i64 {moved}, ptr {place}")
    target = f.at(whole, f.value(f"load i64, ptr {place}"))
    loops = f.at(words, 8 * (_HEAD + _OF_INDEX * starts))
    f.line(f"call void @nest(ptr {part}, ptr {target}, ptr {loops}, i64 {count}, i64 {run}, i64 {filled})")
    return f.text()
