"""Keeps products fast whose operands or sums are subnormal, without changing results.

Processors may take more than a hundred cycles for an operation on a subnormal number. x86-64 tells for free that there
was one: flags in its status register stay set. A tile that sets one is refused before it is stored. From this tile on,
both operands are multiplied by a power of two as they are packed, and sums by its inverse. Roundings stay the same
unless something overflows or underflows. Where a scaled sum overflows, its tile is refused as well, and all are plain
from there on. Where a plain sum underflows, it is scaled if its neighbours allow it, so tiles of all sizes give the
same bits. Control bits of the register, which tell how to round and whether to flush numbers to zero, stay as they are.

BLAS cannot do this, so a sample of the operands tells whether tiles compute what several of its threads would.
"""

from __future__ import annotations

from .arithmetic import Arithmetic
from .assembly import Assembly
from .vectors import Vectors

DECLARED = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"

_DENORMAL, _OVERFLOW, _UNDERFLOW = 2, 8, 16  # flags of the register
_GRID = 16  # rows of a sample, and elements of each
WATCHED, SCALED, PLAIN = _DENORMAL | _UNDERFLOW, _OVERFLOW, 0  # how tiles are computed, by the flags that refuse one


class Watch:
    """The state of a product in 16 bytes: how tiles are computed, the status register, and how many rows of a panel are
    done. Integers, and products on processors without the register, are plain.
    """

    def __init__(self, f: Assembly, state: str) -> None:
        self._f, self.state = f, state
        self._register, self.done = f.at(state, 4), f.at(state, 8)

    def start(self, is_watched: bool) -> None:
        self._f.line(f"store i32 {WATCHED if is_watched else PLAIN}, ptr {self.state}")
        if is_watched:
            self.read()
            with self._f.when(self.has(WATCHED | SCALED)):
                self._f.line(f"store i32 {self._flags(~(WATCHED | SCALED))}, ptr {self._register}")
                self._f.line(f"call void @llvm.x86.sse.ldmxcsr(ptr {self._register})")

    def now(self) -> tuple[str, str]:
        """Returns how tiles are computed, and whether that is scaled."""
        scaling = self._f.value(f"load i32, ptr {self.state}")
        return scaling, self._f.value(f"icmp eq i32 {scaling}, {SCALED}")

    def read(self) -> None:
        """Reads the register."""
        self._f.line(f"call void @llvm.x86.sse.stmxcsr(ptr {self._register})")

    def has(self, flags: str | int) -> str:
        """Whether one of these flags was set when the register was read."""
        return self._f.value(f"icmp ne i32 {self._flags(flags)}, 0")

    def advance(self) -> None:
        """Goes on to scaled tiles, or from these to plain ones."""
        self._f.line(f"store i32 {self._f.choice(self.now()[1], str(PLAIN), str(SCALED), 'i32')}, ptr {self.state}")

    def _flags(self, mask: str | int) -> str:
        return self._f.value(f"and i32 {self._f.value(f'load i32, ptr {self._register}')}, {mask}")


def shift(v: Vectors) -> int:
    """The exponent of the power for an operand: a quarter of all exponents, so sums may rise and fall by a half."""
    return 32 if v.size == 4 else 256


def scaled(f: Assembly, v: Vectors, x: str) -> str:
    """Returns a vector of floats times the power of two, by operations on no subnormal number: its mantissa m, as the
    low bits of another power of two, gives that power plus m scaled.
    """
    mantissa, bias = v.arithmetic.mantissa, 127 if v.size == 4 else 1023
    sign, exponent = 1 << (8 * v.size - 1), shift(v) + 1  # of the power that m is added to, with bias
    bits = f.value(f"bitcast {v.kind} {x} to {v.bits}")
    size = f.value(f"and {v.bits} {bits}, {v.same(sign - 1)}")
    small = f.value(f"icmp ult {v.bits} {size}, {v.same(1 << mantissa)}")
    joined = f.value(f"bitcast {v.bits} {f.value(f'or {v.bits} {size}, {v.same(exponent << mantissa)}')} to {v.kind}")
    pairs = (joined, x), (v.power(0), v.power(shift(v))), (v.power(exponent - bias, "-"), "zeroinitializer")
    found = v.product_and(f, *(f.choice(small, a, b, v.kind, v.mask) for a, b in pairs))
    signed = f"{f.value(f'bitcast {v.kind} {found} to {v.bits}')}, {f.value(f'and {v.bits} {bits}, {v.same(sign)}')}"
    return f.value(f"bitcast {v.bits} {f.value(f'or {v.bits} {signed}')} to {v.kind}")


def sample(f: Assembly, arithmetic: Arithmetic, count: str, matrix: str, sizes: tuple[str, str], *strides: str) -> None:
    """Adds to the count at an address how many numbers in a sample of a matrix are subnormal. It is spread evenly over
    rows, and begins a little later in each, so that it takes all columns of a small matrix.
    """
    kind = f"i{arithmetic.bits}"
    with f.loop(str(_GRID)) as t, f.loop(str(_GRID * _GRID), t, _GRID) as u:
        i, j = f.integer("mul", t, sizes[0]), f.integer("mul", u, sizes[1])
        i, j = f.integer("sdiv", i, _GRID), f.integer("sdiv", j, _GRID * _GRID)
        bits = f.value(f"load {kind}, ptr {f.cell(matrix, (i, strides[0]), (j, strides[1]))}")
        size = f.value(f"and {kind} {bits}, {(1 << (arithmetic.bits - 1)) - 1}")
        below = f.value(f"sub {kind} {size}, 1")  # most of all for zero
        found = f.value(f"icmp ult {kind} {below}, {(1 << arithmetic.mantissa) - 1}")
        old = f.value(f"load i64, ptr {count}")
        f.line(f"store i64 {f.integer('add', old, f.value(f'zext i1 {found} to i64'))}, ptr {count}")
