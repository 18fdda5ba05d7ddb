"""Lays the buffers of a computation in memory as XLA does for CPUs.

- A loop over elements writes over an operand of the same shape that it reads for the last time. A call of the library
  does not, nor does a loop where XLA joins dimensions of one of the two values for a product.
- Results lie in memory during the whole run. Temporary values lie in their place while it is free.
- Ops need copies besides (`xla_copies`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..ir.analysis.awaited import reads
from ..ir.analysis.liveness import Buffer, Lives, Pairs
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import Movement, PassesOn
from ..ir.graph.op import Role
from ..ir.ops.structure import GetTupleElementAttributes
from ..ir.types.shape import first_leaves
from .products import product_of
from .uses import overwritten
from .xla_copies import copies, is_within, joins
from .xla_kernels import XlaKernels, is_view

Span = tuple[int, int, int]
"""The first and the last time of a buffer, and its number."""


def allocate(lives: Lives, kernels: XlaKernels, pairs: Pairs, is_entry: bool) -> None:
    """Changes the buffers of a computation to those that XLA allocates. `pairs` end in the same memory."""
    work = _Allocation(lives, kernels, pairs)
    inner = work.lie_in_results() if is_entry else lives.buffers.inner
    work.write_over()
    made, times = lives.buffers.made, lives.buffers.times
    lives.buffers = type(lives.buffers)(made, list(work.counted), {**times, **dict.fromkeys(work.resident, 0)},
                                        work.ends, work.results, [*inner, *copies(times)])  # fmt: skip
    lives.bytes = lives.buffers.sums()


class _Allocation:
    """The buffers of a computation, by number, while they are laid out. `resident` make results."""

    def __init__(self, lives: Lives, kernels: XlaKernels, pairs: Pairs) -> None:
        buffers = lives.buffers
        self.kernels, self.inner, self.times = kernels, buffers.inner, buffers.times
        self.makers, self.sizes, self.ends = buffers.made.makers, buffers.made.sizes, list(buffers.ends)
        self.counted, self.results = dict.fromkeys(buffers.counted), set(buffers.results)
        self.resident: list[Instruction] = []
        self.merged: dict[int, int] = {}
        leaves = zip(self.makers, buffers.made.leaves, strict=True)
        self.numbers = {leaf: n for n, leaf in enumerate(leaves)}
        self.given = {self.buffer(lives.computation.root, result): parameter for parameter, result in pairs}
        self.joined: dict[Instruction, bool] = {}
        self.pairs = list(self.overwrites())

    # -- loops

    def write_over(self) -> None:
        """Lets loops over elements write over operands, and over parameters where these are given."""
        for new, old in self.pairs:
            while old in self.merged:
                old = self.merged[old]
            if new not in self.counted or self.ends[old] > self.times[self.makers[new]]:
                continue
            if old not in self.counted:
                if self.given.get(new) == old:
                    del self.counted[new]
            elif new not in self.results or new in self.given:
                self.ends[old] = self.ends[new]
                del self.counted[new]
                self.merged[new] = old
                if new in self.results:
                    self.results = self.results - {new} | {old}

    def overwrites(self) -> Iterator[tuple[int, int]]:
        """Yields the buffers of loops over elements, each with those of operands that it could overwrite."""
        for new in sorted(self.counted, key=lambda n: self.times[self.makers[n]]):
            maker = self.makers[new]
            moves = maker.op.interface(Movement)
            if moves is not None and moves.forwards_leaves and not maker.op.is_elementwise:
                sources = [o for n, o in enumerate(maker.operands) if self.numbers[maker, n] == new]
            elif maker.op.is_elementwise and not self.kernels.is_call(maker) and not self.is_joined(maker):
                sources = self.sources(maker)
            else:
                continue
            for source in sources:
                old = self.buffer(source, 0)
                if old is None or old == new or self.sizes[old] != self.sizes[new]:
                    continue
                if self.ends[old] <= self.times[maker]:
                    yield new, old

    def sources(self, value: Instruction) -> Iterator[Instruction]:
        """Yields the stored values that a loop reads element by element."""
        seen, stack = set[Instruction](), list(value.operands)
        while stack:
            read = stack.pop()
            if read in seen or read.shape.byte_size != value.shape.byte_size:
                continue
            seen.add(read)
            if is_view(read):
                stack.append(read.operands[0])
            elif read.op.is_elementwise and read.op.role is None and not self.kernels.is_stored(read):
                stack += read.operands
            elif not is_within(read) and not self.is_joined(read):
                yield read

    def is_joined(self, value: Instruction) -> bool:
        """Whether XLA joins dimensions of a value, for the product that it is or for one that reads it."""
        found = self.joined.get(value)
        if found is None:
            found = self.joined[value] = _is_joined(value)
        return found

    def buffer(self, value: Instruction, leaf: int) -> int | None:
        """Returns the buffer in which a leaf of a value lies: a counted one, or that of a parameter."""
        while True:
            n = self.numbers.get((value, leaf))
            if n is not None and (n in self.counted or value.op.role is Role.PARAMETER):
                return n
            if value.op.role is Role.ELEMENT:
                leaf += first_leaves(value.operands[0].shape)[value.attributes_as(GetTupleElementAttributes).index]
                value = value.operands[0]
            elif value.op.role is Role.TUPLE:
                firsts = first_leaves(value.shape)
                place = bisect_right(firsts, leaf) - 1
                value, leaf = value.operands[place], leaf - firsts[place]
            elif len(value.operands) == 1 and (value.op.role is Role.LOOP or value.op.interface(PassesOn)):
                value = value.operands[0]
            else:
                kept = overwritten(value)
                shown = [o for i, o in enumerate(value.operands) if is_view(value) or i in kept]
                if not shown:
                    return None
                value = shown[0]

    # -- results

    def lie_in_results(self) -> Sequence[Buffer]:
        """Lets results lie in memory from the beginning, and temporary values in their place. Returns what callees need
        besides.
        """
        results = sorted((n for n in self.counted if n in self.results), key=self.sizes.__getitem__)
        overlaps = set(self.pairs)
        used: dict[int, list[Span]] = {r: [(self.times[self.makers[r]], len(self.times), r)] for r in results}

        def is_free(result: int, span: Span) -> bool:
            return all(_apart(span, other, overlaps) for other in used[result])

        temporary = [n for n in self.counted if n not in self.results and not self.makers[n].op.is_control]
        for n in sorted(temporary, key=lambda n: -self.sizes[n]):
            span = self.times[self.makers[n]], self.ends[n], n
            place = next((r for r in results if self.sizes[r] >= self.sizes[n] and is_free(r, span)), None)
            if place is not None:
                used[place].append(span)
                del self.counted[n]
        self.resident = [maker for r in results if not (maker := self.makers[r]).op.is_control or _is_loop(maker)]
        return [_in_rooms(b, [self.sizes[r] for r in results if is_free(r, (b.first, b.last, -1))]) for b in self.inner]


def _is_loop(maker: Instruction) -> bool:
    """Whether a maker works in the memory of its results; other callees have made them when they end."""
    return maker.op.role is Role.LOOP


def _apart(one: Span, two: Span, overlaps: set[tuple[int, int]]) -> bool:
    """Whether two buffers may lie in one place: one after the other, or one where a loop writes over the other."""
    if one[0] > two[0]:
        one, two = two, one
    return one[1] < two[0] or (one[1] == two[0] and (two[2], one[2]) in overlaps)


def _in_rooms(callee: Buffer, rooms: Sequence[int]) -> Buffer:
    """Returns the memory of a callee if temporary values lie in rooms of these sizes."""
    if callee.inner is None or not rooms:
        return callee
    buffers = callee.inner.buffers
    makers, sizes = buffers.made.makers, buffers.made.sizes
    used: list[list[Span]] = [[] for _ in rooms]
    counted = dict.fromkeys(buffers.counted)
    for n in sorted(buffers.counted, key=lambda n: -sizes[n]):
        span = buffers.times[makers[n]], buffers.ends[n], n
        if n in buffers.results or makers[n].op.is_control:
            continue
        for room, spans in zip(rooms, used, strict=True):
            if room >= sizes[n] and all(_apart(span, other, set()) for other in spans):
                spans.append(span)
                del counted[n]
                break
    left = type(buffers)(buffers.made, list(counted), buffers.times, buffers.ends, buffers.results, buffers.inner)
    inner = replace(callee.inner, buffers=left, bytes=left.sums())
    return replace(callee, size=callee.size - callee.inner.peak + inner.peak, inner=inner)


def _is_joined(value: Instruction) -> bool:
    if product_of(value):
        return any(joins(value, side, True) for side in (0, 1))
    return any(product_of(reader) is not None and joins(reader, side, False)
               for reader, read in reads(value, is_view) for side, o in enumerate(reader.operands) if o is read)
