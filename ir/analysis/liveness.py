"""Computes the live ranges of a computation's buffers.

A content is an array that an instruction makes; views of it are the same content. A buffer holds one content, or
several one after the other where updates happen in place, as in element-wise ops on an operand with no later use. It
lives from the definition of its first content to its last use, both included: an instruction needs its operands and its
results. The operands of a start live until its done, those of a collective without a start and of a move to the host
until the first use of the result: there the runtime awaits it (`ir.analysis.awaited`).

Each computation is analysed once, whatever its callers. Its parameters belong to its callers. A parameter may be paired
with a result that must end in its memory, as in the state of a loop or where the program donates it: then the result
takes other memory only as long as the parameter is still read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from ..brief import brief
from ..graph.computation import Computation
from ..graph.host_memory import runs_apart
from ..graph.instruction import Instruction
from ..graph.interfaces import PassesOn, memory
from ..graph.op import Role
from ..ops.starts import Starts
from ..types.shape import Shape
from .awaited import InFlight
from .buffers import Leaf, body_of, makes_anew, rewritten, shared
from .lifetimes import RESIDENT, live_sums


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
    """The buffers of a computation, and the live bytes at each of its instructions: all, and without results.

    `results` maps the leaves of the result to the leaves of the parameters that they forward; None for others.
    """

    computation: Computation
    buffers: _Buffers
    results: Sequence[Leaf]
    bytes: list[int]
    temporary: list[int]

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


class Kernels(Protocol):
    """Tells which values lie in memory, and not only inside of a kernel, and which ones a kernel makes together."""

    def is_stored(self, value: Instruction, /) -> bool: ...
    def together(self, value: Instruction, /) -> Collection[Instruction]: ...


def lives_of(
    computation: Computation, called: Mapping[Computation, Lives], pairs: Pairs, kernels: Kernels | None = None
) -> Lives:
    """Returns the buffers of a computation, given those of its callees. By default each op is a kernel."""
    work = _Scan(computation, called, {c: lives.results for c, lives in called.items()})
    work.find_contents()
    if kernels is not None:
        work.join(kernels)
    work.find_buffers(pairs)
    return work.lives(pairs)


@brief
@dataclass(slots=True)
class _Contents:
    """The contents by number: the defining instruction, the leaf of its value, and the bytes."""

    makers: list[Instruction] = field(default_factory=list[Instruction])
    leaves: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])

    def add(self, maker: Instruction, leaf: int, size: int) -> int:
        """Adds a content and returns its number."""
        self.makers.append(maker)
        self.leaves.append(leaf)
        self.sizes.append(size)
        return len(self.sizes) - 1


@brief
@dataclass(slots=True)
class _Buffers:
    """Buffers in numbers: those `counted` of the contents that were `made` first in each, from the time of the maker to
    their `ends`; and those of called computations (`inner`).
    """

    made: _Contents
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

    def sums(self) -> tuple[list[int], list[int]]:
        """Returns the bytes that live at each time: all, and without results."""
        times, makers, sizes = self.times, self.made.makers, self.made.sizes
        lives = {n: (sizes[n], times[makers[n]], self.ends[n]) for n in self.counted}
        inner = [(buffer.size, buffer.first, buffer.last) for buffer in self.inner]
        live = live_sums([*lives.values(), *inner], len(times))
        of_results = live_sums([lives[n] for n in self.results if n in lives], len(times))
        return live, [a - b for a, b in zip(live, of_results, strict=True)]


@brief
@dataclass(slots=True)
class _Scan:
    """The analysis of one computation. Contents and buffers have numbers; parameters come first."""

    computation: Computation
    called: Mapping[Computation, Lives]
    results: Mapping[Computation, Sequence[Leaf]]
    contents: dict[Instruction, list[int]] = field(default_factory=dict[Instruction, list[int]])
    made: _Contents = field(default_factory=_Contents)
    last: list[int] = field(default_factory=list[int])
    times: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    until: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    buffer_of: list[int] = field(default_factory=list[int])
    parameters: int = 0
    others: list[Instruction] = field(default_factory=list[Instruction])
    inside: set[Instruction] = field(default_factory=set[Instruction])
    later: dict[Instruction, int] = field(default_factory=dict[Instruction, int])

    def find_contents(self) -> None:
        """Numbers the contents, and finds the last use of each. All instructions but the `others` make one array in
        memory of its own.
        """
        self.times = {instruction: time for time, instruction in enumerate(self.computation)}
        self._find_waits()
        for parameter in self.computation.parameters:
            self.contents[parameter] = [self._new(parameter, n, s) for n, s in enumerate(_sizes(parameter.shape))]
        self.parameters = len(self.last)
        contents, made, last = self.contents, self.made, self.last
        for instruction, time in self.times.items():
            if instruction in contents:
                continue
            end, shape = self.until.get(instruction, time), instruction.shape
            if makes_anew(instruction.op) and not shape.is_tuple:
                contents[instruction] = [made.add(instruction, 0, shape.device_bytes)]
                last.append(end)
                if instruction.op.is_elementwise:
                    self.others.append(instruction)
            else:
                self.others.append(instruction)
                operands, leaves = self._operands(instruction), shared(instruction, self.results)
                contents[instruction] = [
                    self._new(instruction, n, size) if leaf is None else operands[leaf]
                    for n, (leaf, size) in enumerate(zip(leaves, _sizes(shape), strict=True))
                ]
                if _reads_nothing(instruction):
                    continue
            for operand in instruction.operands:
                for content in contents[operand]:
                    if last[content] < end:
                        last[content] = end
        for content in contents[self.computation.root]:
            last[content] = len(self.times) - 1

    def join(self, kernels: Kernels) -> None:
        """Takes no memory for values that are not stored. What they are made of lives until their last use, and what a
        kernel reads until its end.
        """
        ends: dict[Instruction, int] = {}
        for instruction, time in reversed(self.times.items()):
            together = kernels.together(instruction)
            if len(together) > 1:
                self.inside.add(instruction)
                if instruction not in ends:
                    ends.update(dict.fromkeys(together, time))  # the last of them comes first
                if (end := ends[instruction]) > time:
                    self._postpone(instruction, together, end)
            contents = self.contents[instruction]
            if len(contents) != 1 or self.made.makers[contents[0]] is not instruction or not instruction.operands:
                continue
            is_fused = instruction.shape.is_array and not (instruction.op.is_control or instruction.op.is_collective)
            if not is_fused or kernels.is_stored(instruction):
                continue
            (content,) = contents
            self.made.sizes[content] = 0
            self.inside.add(instruction)
            for read in self._operands(instruction):
                self.last[read] = max(self.last[read], self.last[content])

    def _postpone(self, instruction: Instruction, together: Collection[Instruction], end: int) -> None:
        """Lets a kernel make a value when it ends, or when another one reads it, and read operands until then."""
        others = [self.times[u] for u in instruction.users if u not in together]
        self.later[instruction] = max(min([end, *others]), self.times[instruction])
        for read in self._operands(instruction):
            self.last[read] = max(self.last[read], end)

    def _find_waits(self) -> None:
        """Finds the done that ends each start and update, and the first use of each collective without a start."""
        flying = InFlight[Instruction]()
        collectives: list[Instruction] = []
        starts: list[Instruction] = []
        for instruction, time in self.times.items():
            for collective in flying.awaited(instruction):
                self.until.setdefault(collective, time)
            op = instruction.op
            if not makes_anew(op) and (op.interface(Starts) or op.role is Role.UPDATE):
                starts.append(instruction)
            elif runs_apart(instruction):
                flying.start(instruction, instruction)
                collectives.append(instruction)
        for collective in collectives:
            self.until.setdefault(collective, len(self.times) - 1)
        for instruction in reversed(starts):
            ends = [self.until.get(u, self.times[u]) for u in instruction.users
                    if u.op.role in (Role.UPDATE, Role.DONE)]  # fmt: skip
            self.until[instruction] = max(ends, default=self.times[instruction])

    def _new(self, instruction: Instruction, leaf: int, size: int) -> int:
        is_parameter = instruction.op.role is Role.PARAMETER
        self.last.append(-1 if is_parameter else self.until.get(instruction, self.times[instruction]))
        return self.made.add(instruction, leaf, size)

    def _operands(self, instruction: Instruction) -> list[int]:
        """Returns the contents of all leaves of the operands."""
        if len(instruction.operands) == 1:
            return self.contents[instruction.operands[0]]
        return [content for operand in instruction.operands for content in self.contents[operand]]

    def find_buffers(self, pairs: Pairs) -> None:
        """Assigns a buffer to each content: its own, or that of an operand that is updated in place."""
        self.buffer_of = list(range(len(self.last)))
        writable = {parameter for parameter, _ in pairs}
        for instruction in self.others:
            if instruction.op.is_elementwise:
                self._overwrite(instruction, writable)
                continue
            targets = rewritten(instruction) if instruction.operands else {}
            if targets:
                end = self.until.get(instruction, self.times[instruction])
                self._rewrite(instruction, targets, end, writable)

    def _overwrite(self, instruction: Instruction, writable: set[int]) -> None:
        """Lets an element-wise op overwrite its first operand of the same size with no later use: it reads each element
        where it writes the result.
        """
        time, (new,) = self.times[instruction], self.contents[instruction]
        if instruction in self.inside:
            return
        for operand in instruction.operands:
            (old,) = self.contents[operand]
            if self.last[old] > time or self.made.sizes[old] != self.made.sizes[new]:
                continue
            if self._is_ours(old, writable) and operand.shape.minor_to_major == instruction.shape.minor_to_major:
                self.buffer_of[new] = self.buffer_of[old]
                return

    def _is_ours(self, content: int, writable: set[int]) -> bool:
        """Whether the program may overwrite the buffer of a content."""
        buffer = self.buffer_of[content]
        return buffer in writable if buffer < self.parameters else not _is_resident(self.made.makers[buffer])

    def _rewrite(self, instruction: Instruction, targets: Mapping[int, int], end: int, writable: set[int]) -> None:
        """Lets results take the buffers of operands that have no other use, now or later."""
        operands = self._operands(instruction)
        readers = Counter(self.buffer_of[content] for content in operands)
        for leaf, number in targets.items():
            new, old = self.contents[instruction][leaf], operands[number]
            buffer = self.buffer_of[old]
            readers[buffer] -= 1
            if new != old and self._is_ours(old, writable) and not readers[buffer] and self.last[old] <= end:
                self.buffer_of[new] = buffer

    def lives(self, pairs: Pairs) -> Lives:
        """Returns the result of the analysis."""
        ends = [-1] * len(self.last)
        for buffer, last in zip(self.buffer_of, self.last, strict=True):
            if ends[buffer] < last:
                ends[buffer] = last
        contents = self.contents[self.computation.root]
        root = [self.buffer_of[content] for content in contents]
        elsewhere = self._paired(pairs, root, ends)
        results = set(root) - {root[result] for _, result in pairs}
        counted = [
            number for number, (buffer, size) in enumerate(zip(self.buffer_of, self.made.sizes, strict=True))
            if size and buffer == number and number not in elsewhere and not _is_resident(self.made.makers[number])
        ]  # fmt: skip
        buffers = _Buffers(self.made, counted, {**self.times, **self.later}, ends, results, list(self._inner()))
        passed = [c if c < self.parameters else None for c in contents]
        return Lives(self.computation, buffers, passed, *buffers.sums())

    def _paired(self, pairs: Pairs, root: Sequence[int], ends: list[int]) -> set[int]:
        """Ends the live ranges of results that move to a parameter's memory after the parameter's last use. Returns the
        buffers that are always live.
        """
        always: set[int] = set()
        for parameter, result in pairs:
            buffer = root[result]
            if buffer < self.parameters or _is_resident(self.made.makers[buffer]):
                continue
            ends[buffer] = min(ends[buffer], ends[parameter])
            if ends[buffer] < self.times[self.made.makers[buffer]]:
                always.add(buffer)
        return always

    def _inner(self) -> Iterator[Buffer]:
        """Yields the memory of callees beyond the results."""
        for instruction in self.others:
            if not instruction.op.is_control:
                continue
            time = self.times[instruction]
            inner = max((self.called[c] for c in instruction.called()), key=lambda lives: lives.peak)
            contents = self.contents[instruction]
            made = () if _keeps_state(instruction) else [n for n in contents if self.made.makers[n] is instruction]
            size = inner.peak - sum(self.made.sizes[n] for n in made)
            if size > 0:
                yield Buffer(instruction, 0, size, time, self.until.get(instruction, time), inner=inner)


def _reads_nothing(instruction: Instruction) -> bool:
    """Whether an instruction only forwards its operands."""
    op = instruction.op
    return op.interface(PassesOn) is not None or memory(op).shares_memory or memory(op).is_view


def _is_resident(instruction: Instruction) -> bool:
    return instruction.op.role in RESIDENT


def _sizes(shape: Shape) -> Iterator[int]:
    return (leaf.device_bytes for leaf in shape.leaves())


def state_pairs(loop: Instruction) -> Pairs:
    """Pairs each leaf of a loop body's parameter with the same leaf of its result: the state is updated in place."""
    return [(n, n) for n in range(body_of(loop).root.shape.num_leaves)]
