"""Computes the live ranges of a computation's buffers.

A buffer holds one content (`contents`), or several one after the other where updates happen in place, as in
element-wise ops on an operand with no later use. It lives from the definition of its first content to its last use,
both included: an instruction needs its operands and its results. The operands of a start live until its done, those of
a collective without a start and of a move to the host until the first use of the result: there the runtime awaits it
(`ir.analysis.awaited`).

Each computation is analysed once, whatever its callers. Its parameters belong to its callers. A parameter may be paired
with a result that must end in its memory, as in the state of a loop or where the program donates it: then the result
takes other memory only as long as the parameter is still read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ..brief import brief
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.op import Role
from .buffers import Leaf, body_of
from .contents import Arrays, Contents, Kernels
from .lifetimes import live_sums


@dataclass(slots=True)
class Buffer:
    """Memory of a computation: `size` bytes while its instructions `first` to `last` run.

    It first holds leaf `leaf` of an instruction, or (`inner`) all memory that a callee takes at its peak beyond the
    results. `is_result` ones hold a part of the computation's result.
    """

    instruction: Instruction
    leaf: int
    size: int
    first: int
    last: int
    is_result: bool = False
    inner: Lives | None = None


@brief
@dataclass(slots=True)
class Lives:
    """The buffers of a computation, and the live bytes at each of its instructions.

    `results` maps the leaves of the result to the leaves of the parameters that they forward; None for others.
    """

    computation: Computation
    buffers: _Buffers
    results: Sequence[Leaf]
    bytes: list[int]

    @property
    def temporary(self) -> list[int]:
        """The live bytes without results."""
        of_results = self.buffers.sums(self.buffers.results)
        return [a - b for a, b in zip(self.bytes, of_results, strict=True)]

    @property
    def peak(self) -> int:
        return max(self.bytes, default=0)

    def at_peak(self) -> list[Buffer]:
        """Returns the buffers that live at the peak, with callees' buffers in place of their sum."""
        time = self.bytes.index(self.peak)
        live = self.buffers.at(time)
        inside = {b.instruction: b.inner for b in live if b.inner is not None and b.first == b.last}
        found = [b for b in live if not _is_inside(b, time, inside)]
        for lives in inside.values():
            found += lives.at_peak()
        return found


def _is_inside(buffer: Buffer, time: int, inside: Mapping[Instruction, Lives]) -> bool:
    """Whether a buffer is part of a callee's: their sum, or a result that the call makes."""
    if buffer.instruction not in inside or buffer.first != time:
        return False
    return buffer.inner is not None or not _keeps_state(buffer.instruction)


def _keeps_state(instruction: Instruction) -> bool:
    """Whether the callee works in the caller's memory of the results, as a loop does in its state."""
    return instruction.op.role is Role.LOOP


Pairs = Sequence[tuple[int, int]]
"""Leaves of the parameters and of the result that end in the same memory."""


def lives_of(
    computation: Computation, called: Mapping[Computation, Lives], pairs: Pairs, kernels: Kernels | None = None
) -> Lives:
    """Returns the buffers of a computation, given those of its callees. By default each op is a kernel."""
    contents = Contents(computation, {c: lives.results for c, lives in called.items()}, kernels)
    return lives_in_order(contents, called, pairs)


def lives_in_order(contents: Contents, called: Mapping[Computation, Lives], pairs: Pairs) -> Lives:
    """Returns the buffers of a computation with these contents in the order that it has now."""
    return _Lifetimes(contents, called).found(pairs)


@brief
@dataclass(slots=True)
class _Buffers:
    """Buffers in numbers: those `counted` of the contents that were `made` first in each, from the time of the maker to
    their `ends`; and those of called computations (`inner`).
    """

    made: Arrays
    counted: Sequence[int]
    times: Mapping[Instruction, int]
    ends: Sequence[int]
    results: Set[int]
    inner: Sequence[Buffer]

    def at(self, time: int) -> list[Buffer]:
        """Returns the buffers that live at a time."""
        found: list[Buffer] = []
        for number in self.counted:
            maker, end = self.made.makers[number], self.ends[number]
            if (first := self.times[maker]) <= time <= end:
                leaf, size = self.made.leaves[number], self.made.sizes[number]
                found.append(Buffer(maker, leaf, size, first, end, number in self.results))
        return found + [b for b in self.inner if b.first <= time <= b.last]

    def sums(self, among: Set[int] | None = None) -> list[int]:
        """Returns the bytes that live at each time: of all buffers, or of the contents `among` some numbers."""
        times, makers, sizes, ends = self.times, self.made.makers, self.made.sizes, self.ends
        numbers = self.counted if among is None else [n for n in self.counted if n in among]
        lives = [(sizes[n], times[makers[n]], ends[n]) for n in numbers]
        inner = [(b.size, b.first, b.last) for b in self.inner] if among is None else []
        return live_sums(lives + inner, len(times))


class _Lifetimes:
    """The lifetimes of the contents of a computation in its order, and the buffers that hold them."""

    def __init__(self, contents: Contents, called: Mapping[Computation, Lives]) -> None:
        self.of, self.called = contents, called
        self.times = {instruction: time for time, instruction in enumerate(contents.computation)}
        self.until = self._awaited()
        self.last = last = [-1] * len(contents.made.sizes)
        for time, instruction in enumerate(contents.computation):
            for content in contents.using.get(instruction, ()):
                last[content] = time
        for instruction, end in self.until.items():
            for content in contents.using[instruction]:
                last[content] = max(last[content], end)
        for content in contents.contents[contents.computation.root]:
            self.last[content] = len(self.times) - 1
        self.later: dict[Instruction, int] = {}
        if contents.nests or contents.fused:
            self._join()
        self.buffer_of = list(range(len(self.last)))

    def _awaited(self) -> dict[Instruction, int]:
        """Returns the times of the done that ends each start and update, and of the first use of each collective
        without a start.
        """
        times, end = self.times.__getitem__, len(self.times) - 1
        until = {i: min(map(times, readers), default=end) for i, readers in self.of.awaiting.items()}
        for instruction in sorted(self.of.starts, key=times, reverse=True):
            ends = [until.get(u, times(u)) for u in instruction.users if u.op.role in (Role.UPDATE, Role.DONE)]
            until[instruction] = max(ends, default=times(instruction))
        return until

    def _join(self) -> None:
        """Lets operands of values in no memory live until the last use of these, and what a kernel reads until its end.
        """
        ends: dict[Instruction, int] = {}
        nests, fused, last = self.of.nests, self.of.fused, self.last
        for instruction, time in reversed(self.times.items()):
            if instruction in nests:
                together = nests[instruction]
                if instruction not in ends:
                    ends.update(dict.fromkeys(together, time))  # the last of them comes first
                if (end := ends[instruction]) > time:
                    self._postpone(instruction, together, end)
            if instruction in fused:
                (content,) = self.of.contents[instruction]
                self._extend(instruction, last[content])

    def _postpone(self, instruction: Instruction, together: Collection[Instruction], end: int) -> None:
        """Lets a kernel make a value when it ends, or when another one reads it, and read operands until then."""
        others = [self.times[u] for u in instruction.users if u not in together]
        self.later[instruction] = max(min([end, *others]), self.times[instruction])
        self._extend(instruction, end)

    def _extend(self, instruction: Instruction, end: int) -> None:
        """Lets the operands of an instruction live until an end, if they do not live longer."""
        last = self.last
        for read in self.of.operands(instruction):
            if last[read] < end:
                last[read] = end

    def found(self, pairs: Pairs) -> Lives:
        """Returns the buffers, after updates in place: an element-wise op overwrites its first operand of the same size
        with no later use, other ops as they say.
        """
        of, last, buffer_of = self.of, self.last, self.buffer_of
        writable = {parameter for parameter, _ in pairs}
        for instruction in sorted((*of.overwriting, *of.rewriting), key=self.times.__getitem__):
            if (targets := of.rewriting.get(instruction)) is not None:
                self._rewrite(instruction, targets, writable)
                continue
            time = self.times[instruction]
            for old in of.overwriting[instruction]:
                if last[old] <= time and self._is_ours(old, writable):
                    buffer_of[of.contents[instruction][0]] = buffer_of[old]
                    break
        return self._lives(pairs)

    def _is_ours(self, content: int, writable: set[int]) -> bool:
        """Whether the program may overwrite the buffer of a content."""
        buffer = self.buffer_of[content]
        return buffer in writable if buffer < self.of.parameters else not self.of.resident[buffer]

    def _rewrite(self, instruction: Instruction, targets: Mapping[int, int], writable: set[int]) -> None:
        """Lets results take the buffers of operands that have no other use, now or later."""
        end = self.until.get(instruction, self.times[instruction])
        operands = self.of.operands(instruction)
        readers = Counter(self.buffer_of[content] for content in operands)
        for leaf, number in targets.items():
            new, old = self.of.contents[instruction][leaf], operands[number]
            buffer = self.buffer_of[old]
            readers[buffer] -= 1
            if new != old and self._is_ours(old, writable) and not readers[buffer] and self.last[old] <= end:
                self.buffer_of[new] = buffer

    def _lives(self, pairs: Pairs) -> Lives:
        of, made, ends = self.of, self.of.made, [-1] * len(self.last)
        for buffer, last in zip(self.buffer_of, self.last, strict=True):
            if ends[buffer] < last:
                ends[buffer] = last
        contents = of.contents[of.computation.root]
        root = [self.buffer_of[content] for content in contents]
        elsewhere = self._paired(pairs, root, ends)
        results = set(root) - {root[result] for _, result in pairs}
        counted = [
            number for number, (buffer, size, resident)
            in enumerate(zip(self.buffer_of, made.sizes, of.resident, strict=True))
            if size and buffer == number and not resident and number not in elsewhere
        ]  # fmt: skip
        times = {**self.times, **self.later} if self.later else self.times
        buffers = _Buffers(made, counted, times, ends, results, list(self._inner()))
        passed = [c if c < of.parameters else None for c in contents]
        return Lives(of.computation, buffers, passed, buffers.sums())

    def _paired(self, pairs: Pairs, root: Sequence[int], ends: list[int]) -> set[int]:
        """Ends the live ranges of results that move to a parameter's memory after the parameter's last use. Returns the
        buffers that are always live.
        """
        always: set[int] = set()
        for parameter, result in pairs:
            buffer = root[result]
            if buffer < self.of.parameters or self.of.resident[buffer]:
                continue
            ends[buffer] = min(ends[buffer], ends[parameter])
            if ends[buffer] < self.times[self.of.made.makers[buffer]]:
                always.add(buffer)
        return always

    def _inner(self) -> Iterator[Buffer]:
        """Yields the memory of callees beyond the results."""
        made = self.of.made
        for instruction in self.of.others:
            if not instruction.op.is_control:
                continue
            time = self.times[instruction]
            inner = max((self.called[c] for c in instruction.called()), key=lambda lives: lives.peak)
            contents = () if _keeps_state(instruction) else self.of.contents[instruction]
            size = inner.peak - sum(made.sizes[n] for n in contents if made.makers[n] is instruction)
            if size > 0:
                yield Buffer(instruction, 0, size, time, self.until.get(instruction, time), inner=inner)


def state_pairs(loop: Instruction) -> Pairs:
    """Pairs each leaf of a loop body's parameter with the same leaf of its result: the state is updated in place."""
    return [(n, n) for n in range(body_of(loop).root.shape.num_leaves)]
