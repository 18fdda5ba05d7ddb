"""Narrow elements of a right matrix, which are widened as they are copied to a panel."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.types.element_type import F32, ElementType, Kind
from .arithmetic import Arithmetic
from .assembly import Assembly
from .vectors import Vectors, least

_OF_HALVES = ("f16", "f8e5m2", "f8e4m3fn")  # which f16 holds, but for a factor
OF_PAIRS = ("s8", "u8", "s16")  # which s16 holds
REST = "%rest"  # an array for the last elements of a row


def is_widened(element: ElementType, wide: ElementType, features: str) -> bool:
    """Whether tiles widen elements of a type to those of a wide one, on a processor with these features."""
    if wide.is_integer:
        return element.is_integer and 8 <= element.bits < wide.bits
    if element.name not in _OF_HALVES:
        return element.name == "bf16" and wide is F32
    return wide is F32 and (_has(features, "f16c") or _has(features, "neon"))


def are_pairs_fast(features: str) -> bool:
    """Whether a processor with these features multiplies pairs by one instruction."""
    return not _has(features, "neon")


def _has(features: str, name: str) -> bool:
    names = features.split(",")
    return f"+{name}" in names and f"-{name}" not in names


@dataclass(frozen=True, slots=True)
class NarrowVectors:
    """Loads of narrow elements that give wide vectors. Limits are numbers of lanes, beyond which others are 0: not all
    processors have masks for bytes.

    Floats are widened by way of f16, by an instruction that takes subnormal numbers for ordinary ones.
    """

    wide: Vectors
    element: ElementType

    @property
    def size(self) -> int:
        return self.element.byte_size

    @property
    def near(self) -> int:
        """The bytes from one row to the next where a column is contiguous."""
        return self.size * (2 if self.wide.arithmetic is Arithmetic.PAIRS else 1)

    @property
    def limit(self) -> str:
        """The type of limits."""
        return "i64"

    @property
    def nothing(self) -> str:
        return "0"

    def first(self, f: Assembly, count: str) -> str:
        """Returns the limit to the first lanes."""
        return least(f, count, str(self.wide.lanes))

    def load(self, f: Assembly, place: str, limit: str | None = None, apart: str | None = None) -> str:
        """Loads a vector, or its lanes in a limit and zero in others. The elements of pairs are this number of bytes
        `apart`, or neighbours.
        """
        v, bits = self.wide, f"i{8 * self.size}"
        if v.arithmetic is not Arithmetic.PAIRS:
            return self._widened(f, self._loaded(f, place, v.lanes, limit))
        if apart is None:
            limit = None if limit is None else f.integer("mul", limit, 2)
            found = self._loaded(f, place, 2 * v.lanes, limit)
            if self.size == 1:
                found = f.value(f"{self._extend} <{2 * v.lanes} x {bits}> {found} to <{2 * v.lanes} x i16>")
            return f.value(f"bitcast <{2 * v.lanes} x i16> {found} to {v.kind}")
        low, high = (self._widened(f, self._loaded(f, at, v.lanes, limit)) for at in (place, f.at(place, apart)))
        low, high = f.value(f"and {v.kind} {low}, {v.same(0xFFFF)}"), f.value(f"shl {v.kind} {high}, {v.same(16)}")
        return f.value(f"or {v.kind} {low}, {high}")

    def _loaded(self, f: Assembly, place: str, count: int, limit: str | None) -> str:
        """Loads elements as they are; those at the end of a row from a copy, since memory may end there."""
        kind = f"<{count} x i{8 * self.size}>"
        if limit is not None:
            is_part = f.value(f"icmp slt i64 {limit}, {count}")
            with f.when(is_part):
                f.line(f"store {kind} zeroinitializer, ptr {REST}")
                size = f.integer("mul", limit, self.size)
                f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {REST}, ptr {place}, i64 {size}, i1 false)")
            place = f.choice(is_part, REST, place, "ptr")
        return f.value(f"load {kind}, ptr {place}, align {self.size}")

    @property
    def _extend(self) -> str:
        return "sext" if self.element.kind is Kind.SIGNED else "zext"

    def _widened(self, f: Assembly, x: str) -> str:
        """Returns the wide elements, exactly."""
        v, lanes, kind = self.wide, self.wide.lanes, f"<{self.wide.lanes} x i{8 * self.size}>"
        if self.element.is_integer:
            return f.value(f"{self._extend} {kind} {x} to {v.kind}")
        if self.element.name == "bf16":
            shifted = f.value(f"shl {v.bits} {f.value(f'zext {kind} {x} to {v.bits}')}, {v.same(16)}")
            return f.value(f"bitcast {v.bits} {shifted} to {v.kind}")
        if self.element.name == "f16":
            return self._of_halves(f, x)
        halves = f"<{lanes} x i16>"
        code = f.value(f"zext {kind} {x} to {halves}")
        if self.element.name == "f8e5m2":
            return self._of_halves(f, f.value(f"shl {halves} {code}, {_each(lanes, 8)}"))
        magnitude = f.value(f"and {halves} {code}, {_each(lanes, 0x7F)}")
        sign = f.value(f"shl {halves} {f.value(f'xor {halves} {code}, {magnitude}')}, {_each(lanes, 8)}")
        is_nan = f.value(f"icmp eq {halves} {magnitude}, {_each(lanes, 0x7F)}")
        moved = f.value(f"shl {halves} {magnitude}, {_each(lanes, 7)}")
        moved = f.value(f"select {v.mask} {is_nan}, {halves} {_each(lanes, 0x7E00)}, {halves} {moved}")
        found = self._of_halves(f, f.value(f"or {halves} {moved}, {sign}"))
        return f.value(f"fmul {v.kind} {found}, {v.power(8)}")

    def _of_halves(self, f: Assembly, bits: str) -> str:
        lanes = self.wide.lanes
        halves = f.value(f"bitcast <{lanes} x i16> {bits} to <{lanes} x half>")
        return f.value(f"fpext <{lanes} x half> {halves} to {self.wide.kind}")


def _each(lanes: int, bits: int) -> str:
    return f"<{', '.join([f'i16 {bits}'] * lanes)}>"
