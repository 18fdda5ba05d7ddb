"""Vectors of numbers in LLVM IR, with masks of lanes."""

from __future__ import annotations

from dataclasses import dataclass

from .arithmetic import Arithmetic
from .assembly import Assembly

DECLARED = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\ndeclare i64 @llvm.smin.i64(i64, i64)"


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of numbers in the text."""

    arithmetic: Arithmetic
    lanes: int

    @property
    def real(self) -> str:
        return self.arithmetic.real

    @property
    def size(self) -> int:
        return self.arithmetic.bits // 8

    @property
    def kind(self) -> str:
        return f"<{self.lanes} x {self.real}>"

    @property
    def bits(self) -> str:
        """The type of the bits of a vector, as integers."""
        return f"<{self.lanes} x i{self.arithmetic.bits}>"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def near(self) -> int:
        """The bytes from one row to the next where a column is contiguous."""
        return self.size

    @property
    def limit(self) -> str:
        """The type of masks, which limit loads."""
        return self.mask

    @property
    def nothing(self) -> str:
        """The mask without lanes."""
        return "zeroinitializer"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}{self.arithmetic.suffix}"

    def declarations(self) -> str:
        kind, mask, name = self.kind, self.mask, self.suffix
        return "\n".join([
            f"declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})" if self.arithmetic.is_float else "",
            f"declare {kind} @llvm.masked.load.{name}.p0(ptr, i32, {mask}, {kind})",
            f"declare void @llvm.masked.store.{name}.p0({kind}, ptr, i32, {mask})",
        ])  # fmt: skip

    def product_and(self, f: Assembly, x: str, y: str, other: str) -> str:
        """Returns x times y plus another vector."""
        if self.arithmetic.is_float:
            values = f"{self.kind} {x}, {self.kind} {y}, {self.kind} {other}"
            return f.value(f"call {self.kind} @llvm.fma.{self.suffix}({values})")
        if self.arithmetic is Arithmetic.PAIRS:
            return self.sum(f, self._products_of_pairs(f, x, y), other)
        return self.sum(f, f.value(f"mul {self.kind} {x}, {y}"), other)

    def _products_of_pairs(self, f: Assembly, x: str, y: str) -> str:
        """Returns the sums of the products of pairs, in the form that LLVM knows as one instruction of x86-64."""
        halves, wide = f"<{2 * self.lanes} x i16>", f"<{2 * self.lanes} x i32>"
        given = (f.value(f"bitcast {self.kind} {pair} to {halves}") for pair in (x, y))
        one, other = (f.value(f"sext {halves} {half} to {wide}") for half in given)
        products = f.value(f"mul {wide} {one}, {other}")
        parts: list[str] = []
        for first in (0, 1):
            numbers = ", ".join(f"i32 {2 * n + first}" for n in range(self.lanes))
            parts.append(f.value(f"shufflevector {wide} {products}, {wide} poison, <{self.lanes} x i32> <{numbers}>"))
        return self.sum(f, *parts)

    def sum(self, f: Assembly, x: str, y: str) -> str:
        return f.value(f"{'fadd' if self.arithmetic.is_float else 'add'} {self.kind} {x}, {y}")

    def same(self, bits: int) -> str:
        """Returns the same bits in all lanes."""
        return f"<{', '.join([f'i{self.arithmetic.bits} {bits}'] * self.lanes)}>"

    def power(self, exponent: int, sign: str = "") -> str:
        """Returns a power of two in all lanes; LLVM writes floats of both types by the bits of a double."""
        bits = (exponent + 1023 << 52) | (len(sign) << 63)
        return f"<{', '.join([f'{self.real} 0x{bits:016X}'] * self.lanes)}>"

    def load(self, f: Assembly, place: str, mask: str | None = None, _apart: str | None = None) -> str:
        """Loads a vector, or its lanes in a mask and zero in others."""
        if mask is None:
            return f.value(f"load {self.kind}, ptr {place}, align {self.size}")
        masked = f"i32 {self.size}, {self.mask} {mask}, {self.kind} zeroinitializer"
        return f.value(f"call {self.kind} @llvm.masked.load.{self.suffix}.p0(ptr {place}, {masked})")

    def store(self, f: Assembly, value: str, place: str, mask: str | None = None) -> None:
        if mask is None:
            f.line(f"store {self.kind} {value}, ptr {place}, align {self.size}")
        else:
            called = f"@llvm.masked.store.{self.suffix}.p0({self.kind} {value}, ptr {place}"
            f.line(f"call void {called}, i32 {self.size}, {self.mask} {mask})")

    def everywhere(self, f: Assembly, place: str) -> str:
        """Broadcasts an element to all lanes."""
        align = 2 if self.arithmetic is Arithmetic.PAIRS else self.size
        x = f.value(f"load {self.real}, ptr {place}, align {align}")
        one = f.value(f"insertelement {self.kind} poison, {self.real} {x}, i32 0")
        return f.value(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.lanes} x i32> zeroinitializer")

    def first(self, f: Assembly, count: str) -> str:
        """Returns the mask of the first lanes."""
        whole, numbers = f"<{self.lanes} x i64>", ", ".join(f"i64 {n}" for n in range(self.lanes))
        one = f.value(f"insertelement {whole} poison, i64 {count}, i32 0")
        limit = f.value(f"shufflevector {whole} {one}, {whole} poison, <{self.lanes} x i32> zeroinitializer")
        return f.value(f"icmp sgt {whole} {limit}, <{numbers}>")


def fetch(f: Assembly, place: str, is_written: bool = False) -> None:
    f.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(is_written)}, i32 3, i32 1)")


def least(f: Assembly, x: str, y: str) -> str:
    return f.value(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")
