"""The machine code of products: one text of LLVM IR that interprets the words of all plans.

Words of a plan: the number of stages, then per stage the number of its words, the leaf that computes it, the three
arrays as number and offset, the number of loops, per loop its size, the three strides and whether it adds to the
result, and the words of the leaf. Offsets and strides are bytes.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from ....ir.types.element_type import ElementType
from .arithmetic import Arithmetic
from .assembly import Assembly
from .subnormal import Watch, sample
from .tiles import WORDS, Tile, tiles_text
from .vectors import DECLARED, Vectors

TILE = 16  # rows that a transposing copy takes at a time
LARGE = 1 << 21  # multiply-adds of a product, above which several threads are faster than tiles


class StageFunction(IntEnum):
    """The functions that compute stages."""

    PLAIN = 0
    COPY = 1
    ZERO = 2
    STAGES = 3
    TILES = 4
    GEMM = 5
    GEMV = 6


_EXACT = (
    StageFunction.PLAIN,
    StageFunction.COPY,
    StageFunction.ZERO,
    StageFunction.STAGES,
    StageFunction.TILES,
)  # those of integers, too


def entry(first: int) -> str:
    """The name of the function that takes a block of words; the plan begins at word `first`."""
    return f"run{first}"


ENTRIES = (3, 4)  # three arrays, and scratch or none


@cache
def products_text(arithmetic: Arithmetic, integer: int, tile: Tile, narrow: ElementType | None = None) -> str:
    """Returns the text for an arithmetic, a library whose integers have this number of bits, and a tile. Tiles read the
    right matrix in a `narrow` type if there is one.
    """
    bits, real = arithmetic.bits, arithmetic.real
    leaves = [_plain(arithmetic), _copy(bits), _zero(), _stages()]
    leaves.append(tiles_text(tile, arithmetic, "tiles", _ARGUMENTS, narrow))
    leaves.append(_tiles(arithmetic, tile.is_watched(arithmetic)))
    intrinsics = [DECLARED, "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
    intrinsics += ["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", Vectors(arithmetic, 1).declarations()]
    if arithmetic.is_float:
        leaves += [_gemm(real, integer), _gemv(real, integer)]
    nest = _nest(tuple(StageFunction) if arithmetic.is_float else _EXACT)
    return "\n".join([*intrinsics, *leaves, nest, *(_entry(first, tile.is_watched(arithmetic)) for first in ENTRIES)])


_ARGUMENTS = "ptr %words, ptr %a, ptr %b, ptr %c, i1 %add, ptr %scratch, ptr %state"
_PASSED = "ptr %a, ptr %b, ptr %c, i1 %add, ptr %scratch, ptr %state"


def _header(leaf: StageFunction) -> str:
    return f"define internal void @leaf{leaf:d}({_ARGUMENTS})"


def _gemm(real: str, integer: int) -> str:
    """Words: the function, two codes of transposition, m, n, k, three distances of rows."""
    f = Assembly(_header(StageFunction.GEMM))
    function, *words = (f.word("%words", n) for n in range(9))
    left, right = (f.value(f"trunc i64 {w} to i32") for w in words[:2])
    m, n, k, lda, ldb, ldc = (_integer(f, w, integer) for w in words[2:])
    beta = _one_or_zero(f, real)
    address = f.value(f"inttoptr i64 {function} to ptr")
    matrices = f"{real} 1.0, ptr %a, {lda}, ptr %b, {ldb}, {real} {beta}, ptr %c, {ldc}"
    f.line(f"call void {address}(i32 101, i32 {left}, i32 {right}, {m}, {n}, {k}, {matrices})")
    return f.text()


def _gemv(real: str, integer: int) -> str:
    """Words: the function, the code of transposition, rows and columns as stored, and three distances."""
    f = Assembly(_header(StageFunction.GEMV))
    function, *words = (f.word("%words", n) for n in range(7))
    code = f.value(f"trunc i64 {words[0]} to i32")
    m, n, lda, step, out = (_integer(f, w, integer) for w in words[1:])
    beta = _one_or_zero(f, real)
    address = f.value(f"inttoptr i64 {function} to ptr")
    arrays = f"{real} 1.0, ptr %a, {lda}, ptr %b, {step}, {real} {beta}, ptr %c, {out}"
    f.line(f"call void {address}(i32 101, i32 {code}, {m}, {n}, {arrays})")
    return f.text()


def _integer(f: Assembly, word: str, integer: int) -> str:
    return f"i64 {word}" if integer == 64 else f"i32 {f.value(f'trunc i64 {word} to i32')}"


def _one_or_zero(f: Assembly, real: str) -> str:
    return f.value(f"select i1 %add, {real} 1.0, {real} 0.0")


def _plain(arithmetic: Arithmetic) -> str:
    """Words: m, n, k, the strides of left by row and inner, of right by inner and column, of out by row and column."""
    f, one = Assembly(_header(StageFunction.PLAIN)), Vectors(arithmetic, 1)
    total = f.value(f"alloca {one.kind}")
    m, n, k, a_row, a_inner, b_inner, b_column, c_row, c_column = (f.word("%words", n) for n in range(9))
    with f.loop(m) as i:
        left = f.step("%a", i, a_row)
        with f.loop(n) as j:
            right, out = f.step("%b", j, b_column), f.cell("%c", (i, c_row), (j, c_column))
            f.line(f"store {one.kind} zeroinitializer, ptr {total}")
            with f.when("%add"):
                f.line(f"store {one.kind} {one.load(f, out)}, ptr {total}")
            with f.loop(k) as p:
                x, y = one.load(f, f.step(left, p, a_inner)), one.load(f, f.step(right, p, b_inner))
                new = one.product_and(f, x, y, one.load(f, total))
                f.line(f"store {one.kind} {new}, ptr {total}")
            one.store(f, one.load(f, total), out)
    return f.text()


def _tiles(arithmetic: Arithmetic, is_watched: bool) -> str:
    """Words: those of tiles, the function that tells how many threads BLAS has, and the words of the same product by
    BLAS, whose first is 0 if it has none. BLAS computes large products if it divides them over several threads, unless
    a sample of the operands has as many subnormal numbers as there are threads: then it would take longer than tiles.
    """
    f = Assembly(_header(StageFunction.TILES))
    if not arithmetic.is_float:
        f.line(f"call void @tiles(ptr %words, {_PASSED})")
        return f.text()
    m, n, k, *strides = (f.word("%words", i) for i in range(7))
    ask, function = f.word("%words", WORDS), f.word("%words", WORDS + 1)
    by_blas, count = f.value("alloca i1"), f.value("alloca i64")
    f.line(f"store i1 false, ptr {by_blas}")
    f.line(f"store i64 0, ptr {count}")
    is_large = f.value(f"icmp sgt i64 {f.integer('mul', f.integer('mul', m, n), k)}, {LARGE}")
    can_ask = f.both(*(f.value(f"icmp ne i64 {word}, 0") for word in (ask, function)))
    with f.when(f.both(is_large, can_ask)):
        threads = f.value(f"call i32 {f.value(f'inttoptr i64 {ask} to ptr')}()")
        are_several, threads = f.value(f"icmp sgt i32 {threads}, 1"), f.value(f"sext i32 {threads} to i64")
        with f.when(are_several):
            if is_watched:
                sample(f, arithmetic, count, "%a", (m, k), *strides[:2])
                sample(f, arithmetic, count, "%b", (k, n), *strides[2:])
            found = f.value(f"load i64, ptr {count}")
            f.line(f"store i1 {f.value(f'icmp slt i64 {found}, {threads}')}, ptr {by_blas}")
    chosen = f.value(f"load i1, ptr {by_blas}")
    with f.when(chosen):
        f.line(f"call void @leaf{StageFunction.GEMM:d}(ptr {f.at('%words', 8 * (WORDS + 1))}, {_PASSED})")
    with f.when(f.nor(chosen)):
        f.line(f"call void @tiles(ptr %words, {_PASSED})")
    return f.text()


def _copy(bits: int) -> str:
    """Copies a matrix from a to c. Words: rows, columns, the strides of a by row and column, those of c.

    Rows that are contiguous in both are copied at once, others in tiles, so that transposing copies use whole cache
    lines.
    """
    f = Assembly(_header(StageFunction.COPY))
    size = bits // 8
    rows, columns, a_row, a_column, c_row, c_column = (f.word("%words", n) for n in range(6))
    both = f.value(f"and i1 {f.value(f'icmp eq i64 {a_column}, {size}')}, {f.value(f'icmp eq i64 {c_column}, {size}')}")
    with f.when(both):
        count = f.value(f"mul i64 {columns}, {size}")
        with f.loop(rows) as i:
            source, target = f.step("%a", i, a_row), f.step("%c", i, c_row)
            f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
    with f.when(f.value(f"xor i1 {both}, true")), f.loop(rows, by=TILE) as start:
        behind = f.value(f"add i64 {start}, {TILE}")
        end = f.value(f"select i1 {f.value(f'icmp slt i64 {behind}, {rows}')}, i64 {behind}, i64 {rows}")
        with f.loop(columns) as j:
            source, target = f.step("%a", j, a_column), f.step("%c", j, c_column)
            with f.loop(end, start) as i:
                x = f.value(f"load i{bits}, ptr {f.step(source, i, a_row)}")
                f.line(f"store i{bits} {x}, ptr {f.step(target, i, c_row)}")
    return f.text()


def _nest(leaves: tuple[StageFunction, ...]) -> str:
    """Runs the loops that the words name, and the leaf in each iteration; without loops, the leaf once."""
    f = Assembly(f"define internal void @nest({_ARGUMENTS}, i64 %count, i64 %leaf)")
    here = f.value("icmp eq i64 %count, 0")
    with f.when(here):
        for leaf in leaves:
            with f.when(f.value(f"icmp eq i64 %leaf, {leaf:d}")):
                f.line(f"call void @leaf{leaf:d}(ptr %words, {_PASSED})")
    with f.when(f.value(f"xor i1 {here}, true")):
        size, a, b, c, adds = (f.word("%words", n) for n in range(5))
        inside, left = f.at("%words", 40), f.value("sub i64 %count, 1")
        is_sum = f.value(f"icmp ne i64 {adds}, 0")
        with f.loop(size) as i:
            again = f.value(f"and i1 {is_sum}, {f.value(f'icmp sgt i64 {i}, 0')}")
            add = f.value(f"or i1 %add, {again}")
            x, y, z = f.step("%a", i, a), f.step("%b", i, b), f.step("%c", i, c)
            moved = f"ptr {x}, ptr {y}, ptr {z}, i1 {add}, ptr %scratch, ptr %state"
            f.line(f"call void @nest(ptr {inside}, {moved}, i64 {left}, i64 %leaf)")
    return f.text()


def _zero() -> str:
    """Words: the number of bytes."""
    f = Assembly(_header(StageFunction.ZERO))
    f.line(f"call void @llvm.memset.p0.i64(ptr %c, i8 0, i64 {f.word('%words', 0)}, i1 false)")
    return f.text()


def _stages() -> str:
    """Runs the stages of a plan, or of a loop over stages."""
    f = Assembly(_header(StageFunction.STAGES))
    place, arrays = f.value("alloca ptr"), f.value("alloca [4 x ptr]")
    for number, name in enumerate(("%a", "%b", "%c", "%scratch")):
        f.line(f"store ptr {name}, ptr {f.at(arrays, 8 * number)}")
    f.line(f"store ptr {f.at('%words', 8)}, ptr {place}")
    with f.loop(f.word("%words", 0)):
        words = f.value(f"load ptr, ptr {place}")
        length, leaf, *places, count = (f.word(words, n) for n in range(9))
        x, y, z = (_array(f, arrays, places[n], places[n + 1]) for n in (0, 2, 4))
        passed = f"ptr {x}, ptr {y}, ptr {z}, i1 %add, ptr %scratch, ptr %state"
        f.line(f"call void @nest(ptr {f.at(words, 72)}, {passed}, i64 {count}, i64 {leaf})")
        f.line(f"store ptr {f.step(words, length, '8')}, ptr {place}")
    return f.text()


def _array(f: Assembly, arrays: str, number: str, offset: str) -> str:
    return f.at(f.value(f"load ptr, ptr {f.step(arrays, number, '8')}"), offset)


def _entry(first: int, is_watched: bool) -> str:
    f = Assembly(f"define void @{entry(first)}(ptr %block)")
    watch = Watch(f, f.value("alloca [2 x i64]"))
    watch.start(is_watched)
    arrays = [f.value(f"load ptr, ptr {f.at('%block', 8 * n)}") for n in range(3)]
    scratch = f.value(f"load ptr, ptr {f.at('%block', 24)}") if first > 3 else "null"
    passed = ", ".join(f"ptr {x}" for x in (f.at("%block", 8 * first), *arrays))
    f.line(f"call void @leaf{StageFunction.STAGES:d}({passed}, i1 false, ptr {scratch}, ptr {watch.state})")
    return f.text()
