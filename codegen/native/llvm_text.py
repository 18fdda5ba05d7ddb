"""Prints kernels as LLVM IR.

The function takes one pointer: to the array of buffers. Loop counters and accumulators are stack slots, which LLVM's
passes turn into registers. The copies of an unrolled strip are printed operation by operation, and all stores after
all operations, so that copies overlap in the processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...cost.host import HOST
from .llvm_memory import MemoryText, padded, suffix_of
from .llvm_operations import TYPES, operation, splat, vector
from .loops import LANES, LOADS, Access, Do, Fold, Kernel, Lane, Nest, Node, Row, Store, Strip
from .streaming import ALIGNMENT, loaded, next_row, streams
from .turned import TurnedSquares, turned_in

HALVES = (8, 4, 2, 1)
Slots = Mapping[Fold, list[str]]


def llvm_text(kernel: Kernel, name: str = "kernel", large: int = HOST.streamed) -> str:
    """Returns the text of a module with one function `name`. The kernel must have no calls left. Arrays of `large`
    bytes go past the caches.
    """
    return _Printer(kernel, large).print(name)


class _Printer(MemoryText):
    def __init__(self, kernel: Kernel, large: int) -> None:
        super().__init__(kernel)
        self.large = large
        self.row: dict[Node, str] = {}
        self.square: tuple[int, str, dict[Access, str]] | None = None  # the loop, its step in a square, turned arrays
        self.ahead: list[tuple[Access, str]] = []  # what to prefetch in a strip, and where its next row begins
        self.streaming: dict[int, str] = {}  # buffers with streaming stores, and whether their places allow them

    def print(self, name: str) -> str:
        for number, _ in enumerate(self.kernel.buffers):
            place = self.new(f"getelementptr ptr, ptr %buffers, i64 {number}")
            self.lines.append(f"%b{number} = load ptr, ptr {place}")
        head, self.lines = self.lines, []
        for nest in self.kernel.nests:
            self.rows(nest, 0, turned_in(nest))
        if self.streaming:
            self.lines.append("fence seq_cst")  # streaming stores are not ordered by themselves
        body, self.lines = self.lines, []
        for buffer, name_of_test in self.streaming.items():
            self.test_streaming(buffer, name_of_test)
        function = "\n".join([*self.slots, *head, *self.lines, *body])
        declared = "\n".join([*sorted(self.declared), *(["!0 = !{i32 1}"] if self.streaming else [])])
        return f"define void @{name}(ptr noalias %buffers) {{\nentry:\n{function}\nret void\n}}\n{declared}\n"

    # -- loops

    def rows(self, nest: Nest, depth: int, squares: TurnedSquares) -> None:
        """Prints the loops over the rows from one dimension on."""
        if depth == len(nest.rows):
            self.steps(nest)
            return
        size, first = nest.rows[depth], 0
        if squares and depth == squares.loop:
            per_square = LANES // math.prod(nest.rows[depth + 1 :])
            first = size - size % per_square
            self.squares(nest, squares, per_square, first)
        if first < size:
            self.counters.append(self.open_loop(size, 1, str(first)))
            self.rows(nest, depth + 1, squares)
            self.counters.pop()
            self.close_loop()

    def steps(self, nest: Nest) -> None:
        """Prints the steps of a row."""
        self.row, self.bases = {}, {}
        self.turned = self.turned_rows(nest)
        for step in nest.steps:
            if isinstance(step, Row):
                self.emit(step.nodes, [self.row], None, "0")
                for store in step.stores:
                    self.store_scalar(nest, store)
            else:
                self.strips(nest, step)

    def squares(self, nest: Nest, squares: TurnedSquares, per_square: int, last: int) -> None:
        """Prints the iterations of a loop below `last`, so many at a time, after turning what their rows read and
        before turning what they write.
        """
        first = self.open_loop(last, per_square)
        self.counters.append(first)
        self.bases = {}
        width, both = padded(nest.columns), (*squares.loads, *squares.stores)
        slots = {access: self.turned_array(access, width) for access in both}
        for access in squares.loads:
            self.turn(access, nest.columns, slots[access], writes=False)
        step = self.open_loop(per_square, 1)
        self.counters[-1] = self.new(f"add i64 {first}, {step}")
        self.square = squares.loop, step, slots
        self.rows(nest, squares.loop + 1, squares)
        self.square, self.turned = None, {}
        self.close_loop()
        self.counters[-1], self.bases = first, {}
        for access in squares.stores:
            self.turn(access, nest.columns, slots[access], writes=True)
        self.counters.pop()
        self.close_loop()

    def turned_rows(self, nest: Nest) -> dict[Access, str]:
        """Returns where the current row has its elements of turned squares."""
        if self.square is None:
            return {}
        loop, row, slots = self.square
        for size, counter in zip(nest.rows[loop + 1 :], self.counters[loop + 1 :], strict=True):
            row = self.new(f"add i64 {self.new(f'mul i64 {row}, {size}')}, {counter}")
        place, found = self.new(f"mul i64 {row}, {padded(nest.columns)}"), dict[Access, str]()
        for access, slot in slots.items():
            kind = TYPES[self.kernel.buffers[access.buffer]]
            found[access] = self.new(f"getelementptr {kind}, ptr {slot}, i64 {place}")
        return found

    def strips(self, nest: Nest, strip: Strip) -> None:
        for access in _accesses(strip):
            self.base(access)
        self.ahead = []
        for access in next_row(nest, strip, self.large):
            kind = TYPES[self.kernel.buffers[access.buffer]]
            place = self.new(f"getelementptr {kind}, ptr {self.base(access)}, i64 {access.strides[-2]}")
            self.ahead.append((access, place))
        slots = {f: [self.slot(vector(f.value.lane)) for _ in range(nest.unroll)] for f in strip.folds}
        for fold, accumulators in slots.items():
            for slot in accumulators:
                start = splat(fold.identity, fold.value.lane)
                self.lines.append(f"store {vector(fold.value.lane)} {start}, ptr {slot}, align 64")
        whole, tail = divmod(nest.columns, LANES)
        grouped = whole - whole % nest.unroll
        if grouped:
            self.loop_of_strips(nest, strip, nest.unroll, 0, grouped, slots)
        if whole > grouped:
            self.loop_of_strips(nest, strip, 1, grouped, whole, slots)
        if tail:
            self.copies(nest, strip, str(whole * LANES), 1, tail, slots)
        for fold, accumulators in slots.items():
            self.row[fold.result] = self.folded(fold, accumulators)

    def loop_of_strips(self, nest: Nest, strip: Strip, copies: int, first: int, last: int, slots: Slots) -> None:
        column = self.open_loop(last * LANES, copies * LANES, str(first * LANES))
        self.copies(nest, strip, column, copies, 0, slots)
        self.close_loop()

    def copies(self, nest: Nest, strip: Strip, column: str, count: int, tail: int, slots: Slots) -> None:
        """Prints this many copies of a strip; with a tail, only its first lanes are active."""
        mask = loading = _first(tail) if tail else None
        values: list[dict[Node, str]] = [{} for _ in range(count)]
        if mask and any(node.do in LOADS and node.place_and_mask()[1] for node in strip.nodes):
            column, loading = self.opaque(column, "i64"), self.opaque(mask, "<16 x i1>")
        if mask is None:
            self.prefetch(column, count)
        self.emit(strip.nodes, values, loading, column)
        for copy, known in enumerate(values):
            for store in strip.stores:
                value = self.value(store.value, known)
                if store.do:
                    old = self.load(store.access, store.value.lane, column, copy, mask)
                    value = self.combined(nest, store, value, old)
                if store.access in self.turned and store.at is None and store.do is None:
                    self.keep(store, value, column, copy)
                elif mask is None and streams(self.kernel, nest, strip, store, self.large):
                    self.store_streaming(store, value, column, copy)
                else:
                    self.store(store, value, column, copy, mask)
        for fold, accumulators in slots.items():
            kind = vector(fold.value.lane)
            for copy, known in enumerate(values):
                value = self.value(fold.value, known)
                if mask:
                    other = splat(fold.identity, fold.value.lane)
                    value = self.new(f"select <16 x i1> {mask}, {kind} {value}, {kind} {other}")
                old = self.new(f"load {kind}, ptr {accumulators[copy]}, align 64")
                result = operation(self, fold.do, fold.value.lane, fold.value.lane, [old, value])
                self.lines.append(f"store {kind} {result}, ptr {accumulators[copy]}, align 64")

    def prefetch(self, column: str, count: int) -> None:
        """Prefetches the same columns of the next row."""
        for access, place in self.ahead:
            self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            strip = LANES * self.kernel.buffers[access.buffer].bits // 8
            first = self.contiguous(access, column, 0, place)
            for line in range(0, count * strip, HOST.cache_line):
                address = self.new(f"getelementptr i8, ptr {first}, i64 {line}")
                self.lines.append(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def opaque(self, value: str, kind: str) -> str:
        """Hides a value from LLVM's optimizer. LLVM 22 loads all lanes of half a register on processors without AVX-512
        where it finds that a mask computed by other lanes is false in this half.
        """
        slot = self.slot(kind)
        self.lines.append(f"store volatile {kind} {value}, ptr {slot}, align 64")
        return self.new(f"load volatile {kind}, ptr {slot}, align 64")

    def folded(self, fold: Fold, accumulators: list[str]) -> str:
        """Reduces the accumulators pairwise, then their lanes; returns the result in all lanes."""
        lane, kind = fold.value.lane, vector(fold.value.lane)
        values = [self.new(f"load {kind}, ptr {slot}, align 64") for slot in accumulators]
        while len(values) > 1:
            values = [operation(self, fold.do, lane, lane, values[n : n + 2]) for n in range(0, len(values), 2)]
        (value,) = values
        for half in HALVES:
            places = ", ".join(f"i32 {(n + half) % LANES}" for n in range(LANES))
            other = self.new(f"shufflevector {kind} {value}, {kind} poison, <16 x i32> <{places}>")
            value = operation(self, fold.do, lane, lane, [value, other])
        first = self.new(f"extractelement {kind} {value}, i32 0")
        return self.in_all_lanes(first, TYPES[lane])

    # -- values

    def value(self, node: Node, known: Mapping[Node, str]) -> str:
        if node.do is Do.CONSTANT:
            return splat(node.data, node.lane)
        return known[node] if node in known else self.row[node]

    def emit(self, nodes: tuple[Node, ...], values: list[dict[Node, str]], mask: str | None, column: str) -> None:
        for node in nodes:
            for copy, known in enumerate(values):
                if node.do is Do.CONSTANT:
                    continue
                if node.do in LOADS:
                    at, own = node.place_and_mask()
                    if not node.operands and node.data in self.turned:
                        known[node] = self.kept(node.data, column, copy)
                        continue
                    both = self.both(self.value(own, known) if own is not None else None, mask)
                    if at is not None and not at.uniform:
                        pointers = self.pointers(node.data, column, copy, at=self.value(at, known))
                        known[node] = self.gathered(pointers, node.lane, both)
                        continue
                    base = self.moved(node.data, self.value(at, known)) if at is not None else None
                    known[node] = self.load(node.data, node.lane, column, copy, both, base)
                elif node.do is Do.INDEX:
                    known[node] = self.index(node, column, copy)
                else:
                    operands = [self.value(o, known) for o in node.operands]
                    source = node.operands[-1].lane
                    known[node] = operation(self, node.do, node.lane, source, operands)

    def index(self, node: Node, column: str, copy: int) -> str:
        if node.uniform:
            loop: int = node.data
            counter = self.counters[loop]
            if node.lane is not Lane.I64:
                counter = self.new(f"trunc i64 {counter} to {TYPES[node.lane]}")
            return self.in_all_lanes(counter, TYPES[node.lane])
        places = self.columns(column, copy)
        if node.lane is Lane.I64:
            return places
        return self.new(f"trunc <16 x i64> {places} to {vector(node.lane)}")

    def base_of(self, store: Store) -> str:
        """Returns the address of column 0 of a store."""
        return self.base(store.access) if store.at is None else self.moved(store.access, self.value(store.at, {}))

    def store(self, store: Store, value: str, column: str, copy: int, mask: str | None) -> None:
        access, lane, base = store.access, store.value.lane, self.base_of(store)
        wide, size, suffix = vector(lane), lane.bits // 8, f"v16{suffix_of(lane)}"
        if access.column == 1 and mask is None:
            self.lines.append(f"store {wide} {value}, ptr {self.contiguous(access, column, copy, base)}, align {size}")
        elif access.column == 1 and mask == _ONE:  # LLVM 22 would store lanes wider than memory without narrowing them
            first = self.new(f"extractelement {wide} {value}, i32 0")
            place = self.contiguous(access, column, copy, base)
            self.lines.append(f"store {TYPES[lane]} {first}, ptr {place}, align {size}")
        elif access.column == 1:
            name = f"void @llvm.masked.store.{suffix}.p0"
            self.declared.add(f"declare {name}({wide}, ptr, i32, <16 x i1>)")
            place = self.contiguous(access, column, copy, base)
            self.lines.append(f"call {name}({wide} {value}, ptr {place}, i32 {size}, <16 x i1> {mask})")
        else:
            name = f"void @llvm.masked.scatter.{suffix}.v16p0"
            self.declared.add(f"declare {name}({wide}, <16 x ptr>, i32, <16 x i1>)")
            places, mask = self.pointers(access, column, copy, base), mask or splat(1, Lane.MASK)
            self.lines.append(f"call {name}({wide} {value}, <16 x ptr> {places}, i32 {size}, <16 x i1> {mask})")

    def keep(self, store: Store, value: str, column: str, copy: int) -> None:
        """Stores a strip where it is turned after the square."""
        lane = store.value.lane
        place = self.contiguous(store.access, column, copy, self.turned[store.access])
        self.lines.append(f"store {vector(lane)} {value}, ptr {place}, align {lane.bits // 8}")

    def store_streaming(self, store: Store, value: str, column: str, copy: int) -> None:
        """Emits a streaming store of a whole strip, or a usual one where the address of the buffer forbids this."""
        label, buffer = self.label(), store.access.buffer
        test = self.streaming.setdefault(buffer, f"%streaming{buffer}")
        place = self.contiguous(store.access, column, copy)
        text = f"store {vector(store.value.lane)} {value}, ptr {place}, align"
        self.lines += [
            *(f"br i1 {test}, label %past{label}, label %usual{label}", f"past{label}:"),
            *(f"{text} {ALIGNMENT}, !nontemporal !0", f"br label %stored{label}", f"usual{label}:"),
            *(f"{text} {store.value.lane.bits // 8}", f"br label %stored{label}", f"stored{label}:"),
        ]

    def test_streaming(self, buffer: int, name: str) -> None:
        """Defines `name`: whether a buffer is aligned and differs from all buffers that the kernel reads and so caches.
        """
        address = self.new(f"ptrtoint ptr %b{buffer} to i64")
        rest = self.new(f"and i64 {address}, {ALIGNMENT - 1}")
        test = self.new(f"icmp eq i64 {rest}, 0")
        for other in loaded(self.kernel):
            differs = self.new(f"icmp ne ptr %b{buffer}, %b{other}")
            test = self.new(f"and i1 {test}, {differs}")
        self.lines.append(f"{name} = and i1 {test}, true")

    def combined(self, nest: Nest, store: Store, value: str, old: str) -> str:
        """Combines a value with the current content of its store's address, if an earlier row stored there."""
        assert store.do is not None
        lane, kind = store.value.lane, vector(store.value.lane)
        later = "false"
        for loop in store.combined_rows(nest.rows):
            again = self.new(f"icmp ne i64 {self.counters[loop]}, 0")
            later = self.new(f"or i1 {later}, {again}")
        old = self.new(f"select i1 {later}, {kind} {old}, {kind} {splat(store.identity, lane)}")
        return operation(self, store.do, lane, lane, [old, value])

    def store_scalar(self, nest: Nest, store: Store) -> None:
        kind, value = TYPES[store.value.lane], self.value(store.value, {})
        if store.do:
            old = self.load(store.access, store.value.lane, "0", 0, None)
            value = self.combined(nest, store, value, old)
        first = self.new(f"extractelement {vector(store.value.lane)} {value}, i32 0")
        self.lines.append(f"store {kind} {first}, ptr {self.base_of(store)}, align {store.value.lane.bits // 8}")


def _first(count: int) -> str:
    """Returns the mask of the first lanes."""
    return "<" + ", ".join(f"i1 {'true' if n < count else 'false'}" for n in range(LANES)) + ">"


_ONE = _first(1)


def _accesses(strip: Strip) -> list[Access]:
    loads = [node.data for node in strip.nodes if node.do in LOADS]
    return loads + [store.access for store in strip.stores]
