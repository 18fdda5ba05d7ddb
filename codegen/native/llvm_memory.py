"""Prints addresses and loads of the loop IR as LLVM IR."""

from __future__ import annotations

from .llvm_operations import TYPES, Text, splat, vector
from .loops import LANES, Access, Kernel, Lane
from .turned import turned

_INDICES = "<" + ", ".join(f"i64 {n}" for n in range(LANES)) + ">"


class MemoryText(Text):
    """The accesses of a kernel to its buffers, in the loops over rows that are open."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.counters: list[str] = []  # of the rows
        self.bases: dict[Access, str] = {}
        self.turned: dict[Access, str] = {}  # where the current row has the elements of turned accesses

    def base(self, access: Access) -> str:
        """Returns the address of column 0 in the current row."""
        if access not in self.bases:
            place = str(access.offset)
            for counter, stride in zip(self.counters, access.strides, strict=False):
                if stride:
                    step = self.new(f"mul i64 {counter}, {stride}")
                    place = self.new(f"add i64 {place}, {step}")
            kind = TYPES[self.kernel.buffers[access.buffer]]
            self.bases[access] = self.new(f"getelementptr {kind}, ptr %b{access.buffer}, i64 {place}")
        return self.bases[access]

    def moved(self, access: Access, at: str) -> str:
        """Returns the address of column 0 plus a uniform offset."""
        first = self.new(f"extractelement <16 x i64> {at}, i32 0")
        kind = TYPES[self.kernel.buffers[access.buffer]]
        return self.new(f"getelementptr {kind}, ptr {self.base(access)}, i64 {first}")

    def columns(self, column: str, copy: int) -> str:
        first = self.in_all_lanes(self.shifted(column, copy * LANES), "i64")
        return self.new(f"add <16 x i64> {first}, {_INDICES}")

    def shifted(self, place: str, count: int) -> str:
        return self.new(f"add i64 {place}, {count}") if count else place

    def pointers(
        self, access: Access, column: str, copy: int, base: str | None = None, at: str | None = None
    ) -> str:
        """Returns the addresses of the lanes of a strip, offset by `at` elements per lane."""
        places = self.columns(column, copy)
        places = self.new(f"mul <16 x i64> {places}, {splat(access.column, Lane.I64)}")
        places = places if at is None else self.new(f"add <16 x i64> {places}, {at}")
        kind = TYPES[self.kernel.buffers[access.buffer]]
        return self.new(f"getelementptr {kind}, ptr {base or self.base(access)}, <16 x i64> {places}")

    def contiguous(self, access: Access, column: str, copy: int, base: str | None = None) -> str:
        kind = TYPES[self.kernel.buffers[access.buffer]]
        place = self.shifted(column, copy * LANES)
        return self.new(f"getelementptr {kind}, ptr {base or self.base(access)}, i64 {place}")

    def both(self, mask: str | None, other: str | None) -> str | None:
        return self.new(f"and <16 x i1> {mask}, {other}") if mask and other else mask or other

    def load(
        self, access: Access, lane: Lane, column: str, copy: int, mask: str | None, base: str | None = None
    ) -> str:
        """Loads elements, at addresses relative to `base` or to the access's own base."""
        kind, wide, size = TYPES[lane], vector(lane), lane.bits // 8
        if not access.column and mask is None:
            return self.in_all_lanes(self.new(f"load {kind}, ptr {base or self.base(access)}, align {size}"), kind)
        if access.column == 1 and mask is None:
            return self.new(f"load {wide}, ptr {self.contiguous(access, column, copy, base)}, align {size}")
        suffix = f"v16{suffix_of(lane)}"
        if access.column == 1:
            place = self.contiguous(access, column, copy, base)
            name = f"{wide} @llvm.masked.load.{suffix}.p0"
            self.declared.add(f"declare {name}(ptr, i32, <16 x i1>, {wide})")
            return self.new(f"call {name}(ptr {place}, i32 {size}, <16 x i1> {mask}, {wide} zeroinitializer)")
        return self.gathered(self.pointers(access, column, copy, base), lane, mask)

    def kept(self, access: Access, column: str, copy: int) -> str:
        """Loads a strip of the turned elements of the current row."""
        lane = self.kernel.buffers[access.buffer]
        place = self.contiguous(access, column, copy, self.turned[access])
        return self.new(f"load {vector(lane)}, ptr {place}, align {lane.bits // 8}")

    def gathered(self, pointers: str, lane: Lane, mask: str | None) -> str:
        """Gathers one element per lane."""
        wide, mask = vector(lane), mask or splat(1, Lane.MASK)
        name = f"{wide} @llvm.masked.gather.v16{suffix_of(lane)}.v16p0"
        self.declared.add(f"declare {name}(<16 x ptr>, i32, <16 x i1>, {wide})")
        size = lane.bits // 8
        return self.new(f"call {name}(<16 x ptr> {pointers}, i32 {size}, <16 x i1> {mask}, {wide} zeroinitializer)")

    def turned_array(self, access: Access, width: int) -> str:
        """Returns an array for 16 rows of `width` elements."""
        return self.slot(f"[{LANES * width} x {TYPES[self.kernel.buffers[access.buffer]]}]")

    def turn(self, access: Access, columns: int, slot: str, writes: bool) -> None:
        """Reads 16 rows along memory to an array that has them row by row, with zeros after the last column, or
        `writes` them from there.
        """
        whole = columns - columns % LANES
        self.base(access)  # before the loop, since what comes after it uses the address, too
        if whole:
            column = self.open_loop(whole, LANES)
            self.turn_square(access, column, LANES, slot, padded(columns), writes)
            self.close_loop()
        if whole < columns:
            self.turn_square(access, str(whole), columns - whole, slot, padded(columns), writes)

    def turn_square(self, access: Access, column: str, count: int, slot: str, width: int, writes: bool) -> None:
        """Turns some columns, at most 16."""
        lane, base = self.kernel.buffers[access.buffer], self.base(access)
        kind, wide, align = TYPES[lane], vector(lane), lane.bits // 8
        lines, rows = list[str](), list[str]()
        for n in range(count):
            place = self.new(f"mul i64 {self.shifted(column, n)}, {access.column}")
            lines.append(self.new(f"getelementptr {kind}, ptr {base}, i64 {place}"))
        for n in range(LANES):
            rows.append(self.new(f"getelementptr {kind}, ptr {slot}, i64 {self.shifted(column, n * width)}"))
        sources, targets = (rows, lines) if writes else (lines, rows)
        loaded = [self.new(f"load {wide}, ptr {source}, align {align}") for source in sources]
        loaded += ["zeroinitializer"] * (LANES - len(loaded))
        for target, value in zip(targets, turned(self.new, wide, loaded), strict=False):
            self.lines.append(f"store {wide} {value}, ptr {target}, align {align}")


def padded(columns: int) -> int:
    """Returns the length of a row of whole strips."""
    return columns + -columns % LANES


def suffix_of(lane: Lane) -> str:
    """Returns the name of a type in names of intrinsics."""
    return lane.text if lane.is_float else TYPES[lane]
