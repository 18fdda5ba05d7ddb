"""Finds which buffers of a computation live at which of its instructions.

A content is an array that an instruction makes; views of it are the same content. A buffer holds one content, or
several one after the other where updates happen in place. It lives from the instruction that makes its first content
to the last one that reads it, both included: an instruction needs its operands and its results. What a start reads is
held until its done, what a collective without a start reads until the first instruction that reads its result: there
the runtime awaits it (`cost.pending`).

Each computation is analysed once, whoever calls it. Its parameters belong to its callers. A parameter may be paired
with a result that must end in its memory, as in the state of a loop or where the program donates it: then the result
takes other memory only as long as the parameter is still read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.op import Role
from ..ir.ops.async_ops import AsyncDone, AsyncStart, AsyncUpdate
from ..ir.types.shape import Shape
from .buffers import Leaf, body_of, rewritten, shared
from .pending import InFlight


@dataclass(slots=True)
class Buffer:
    """Memory that a computation takes: `size` bytes while its instructions `first` to `last` run.

    It first holds leaf `leaf` of an instruction, or (`inner`) all memory that a called computation takes at its peak
    beyond the results. `is_result` ones hold a part of the computation's result.
    """

    instruction: Instruction
    leaf: int
    size: int
    first: int
    last: int
    is_result: bool = False
    inner: Lives | None = None


@dataclass(slots=True)
class Lives:
    """The buffers of a computation, and the bytes that live at each of its instructions: all, and without results.

    `results` are the parameters' leaves that the result consists of, unchanged; None for others.
    """

    computation: Computation
    buffers: list[Buffer]
    results: Sequence[Leaf]
    bytes: list[int]
    temporary: list[int]

    @property
    def peak(self) -> int:
        return max(self.bytes, default=0)

    def at_peak(self) -> list[Buffer]:
        """Returns the buffers that live at the peak, those of called computations in place of their sum."""
        time = self.bytes.index(self.peak)
        live = [b for b in self.buffers if b.first <= time <= b.last]
        inside = {b.instruction: b.inner for b in live if b.inner is not None and b.first == b.last}
        found = [b for b in live if not _is_inside(b, time, inside)]
        for lives in inside.values():
            found += lives.at_peak()
        return found


def _is_inside(buffer: Buffer, time: int, inside: Mapping[Instruction, Lives]) -> bool:
    """Whether a buffer is among those of a called computation: their sum, or a result that the call makes."""
    if buffer.instruction not in inside or buffer.first != time:
        return False
    return buffer.inner is not None or not _keeps_state(buffer.instruction)


def _keeps_state(instruction: Instruction) -> bool:
    """Whether the results are memory of the caller, in which the called computation works, as the state of a loop."""
    return instruction.op.role is Role.LOOP


Pairs = Sequence[tuple[int, int]]
"""Leaves of the parameters and of the result that end in the same memory."""


def lives_of(computation: Computation, called: Mapping[Computation, Lives], pairs: Pairs) -> Lives:
    """Returns the buffers of a computation, given those of what it calls."""
    work = _Scan(computation, called, {c: lives.results for c, lives in called.items()})
    work.find_contents()
    work.find_buffers(pairs)
    return work.lives(pairs)


class _Content(NamedTuple):
    """The leaf of an instruction that makes an array, and the bytes of it."""

    maker: Instruction
    leaf: int
    size: int


@dataclass(slots=True)
class _Scan:
    """The analysis of one computation. Contents and buffers have numbers; parameters come first."""

    computation: Computation
    called: Mapping[Computation, Lives]
    results: Mapping[Computation, Sequence[Leaf]]
    contents: dict[Instruction, list[int]] = field(default_factory=dict[Instruction, list[int]])
    made: list[_Content] = field(default_factory=list["_Content"])
    last: list[int] = field(default_factory=list[int])
    times: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    until: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    buffer_of: list[int] = field(default_factory=list[int])
    parameters: int = 0
    collectives: list[Instruction] = field(default_factory=list[Instruction])

    def find_contents(self) -> None:
        """Numbers the contents, and finds the last instruction that needs each."""
        self.times = {instruction: time for time, instruction in enumerate(self.computation)}
        self._find_waits()
        for parameter in self.computation.parameters:
            self.contents[parameter] = [self._new(parameter, n, s) for n, s in enumerate(_sizes(parameter.shape))]
        self.parameters = len(self.made)
        for instruction, time in self.times.items():
            if instruction in self.contents:
                continue
            operands, leaves = self._operands(instruction), shared(instruction, self.results)
            self.contents[instruction] = [
                self._new(instruction, n, size) if leaf is None else operands[leaf]
                for n, (leaf, size) in enumerate(zip(leaves, _sizes(instruction.shape), strict=True))
            ]
            if not _reads_nothing(instruction):
                for content in operands:
                    self.last[content] = max(self.last[content], self.until.get(instruction, time))
        for content in self.contents[self.computation.root]:
            self.last[content] = len(self.times) - 1

    def _find_waits(self) -> None:
        """Finds for each start and update the done that ends it, and for each collective without a start the first
        instruction that reads its result.
        """
        flying = InFlight[Instruction]()
        for instruction, time in self.times.items():
            for collective in flying.awaited(instruction):
                self.until.setdefault(collective, time)
            if instruction.op.is_collective and not isinstance(instruction.op, AsyncStart):
                flying.start(instruction, instruction)
                self.collectives.append(instruction)
        for collective in self.collectives:
            self.until.setdefault(collective, len(self.times) - 1)
        for instruction in reversed(self.computation):
            if isinstance(instruction.op, AsyncStart | AsyncUpdate):
                ends = [self.until.get(u, self.times[u]) for u in instruction.users
                        if isinstance(u.op, AsyncDone | AsyncUpdate)]  # fmt: skip
                self.until[instruction] = max(ends, default=self.times[instruction])

    def _new(self, instruction: Instruction, leaf: int, size: int) -> int:
        self.made.append(_Content(instruction, leaf, size))
        is_parameter = instruction.op.role is Role.PARAMETER
        self.last.append(-1 if is_parameter else self.until.get(instruction, self.times[instruction]))
        return len(self.made) - 1

    def _operands(self, instruction: Instruction) -> list[int]:
        """Returns the contents of all leaves of the operands."""
        if len(instruction.operands) == 1:
            return self.contents[instruction.operands[0]]
        return [content for operand in instruction.operands for content in self.contents[operand]]

    def find_buffers(self, pairs: Pairs) -> None:
        """Gives each content a buffer: its own, or that of an operand which is updated in place."""
        self.buffer_of = list(range(len(self.made)))
        writable = {parameter for parameter, _ in pairs}
        for instruction, time in self.times.items():
            targets = rewritten(instruction) if instruction.operands else {}
            if targets:
                self._rewrite(instruction, targets, self.until.get(instruction, time), writable)

    def _rewrite(self, instruction: Instruction, targets: Mapping[int, int], end: int, writable: set[int]) -> None:
        """Lets results take the buffers of operands that nothing else reads, now or later."""
        operands = self._operands(instruction)
        readers = Counter(self.buffer_of[content] for content in operands)
        for leaf, number in targets.items():
            new, old = self.contents[instruction][leaf], operands[number]
            buffer = self.buffer_of[old]
            is_ours = buffer in writable if buffer < self.parameters else not _is_resident(self.made[buffer].maker)
            readers[buffer] -= 1
            if new != old and is_ours and not readers[buffer] and self.last[old] <= end:
                self.buffer_of[new] = buffer

    def lives(self, pairs: Pairs) -> Lives:
        """Returns the result of the analysis."""
        ends = [-1] * len(self.made)
        for content, buffer in enumerate(self.buffer_of):
            ends[buffer] = max(ends[buffer], self.last[content])
        root = [self.buffer_of[content] for content in self.contents[self.computation.root]]
        elsewhere = self._paired(pairs, root, ends)
        results = set(root) - {root[result] for _, result in pairs}
        buffers = [
            Buffer(maker, leaf, size, self.times[maker], ends[number], number in results)
            for number, (maker, leaf, size) in enumerate(self.made)
            if self.buffer_of[number] == number and not _is_resident(maker) and number not in elsewhere and size
        ]  # fmt: skip
        buffers += self._inner()
        count = len(self.times)
        passed = [c if c < self.parameters else None for c in self.contents[self.computation.root]]
        return Lives(
            self.computation, buffers, passed, _sums(buffers, count),
            _sums([b for b in buffers if not b.is_result], count),
        )  # fmt: skip

    def _paired(self, pairs: Pairs, root: Sequence[int], ends: list[int]) -> set[int]:
        """Shortens the lives of results that move to a parameter's memory as soon as nothing reads that any more.
        Returns the buffers that are always there.
        """
        always: set[int] = set()
        for parameter, result in pairs:
            buffer = root[result]
            if buffer < self.parameters or _is_resident(self.made[buffer].maker):
                continue
            ends[buffer] = min(ends[buffer], ends[parameter])
            if ends[buffer] < self.times[self.made[buffer].maker]:
                always.add(buffer)
        return always

    def _inner(self) -> Iterator[Buffer]:
        """Yields the memory of called computations beyond the results."""
        for instruction, time in self.times.items():
            if not instruction.op.is_control:
                continue
            inner = max((self.called[c] for c in instruction.called()), key=lambda lives: lives.peak)
            contents = self.contents[instruction]
            made = () if _keeps_state(instruction) else [n for n in contents if self.made[n].maker is instruction]
            size = inner.peak - sum(self.made[n].size for n in made)
            if size > 0:
                yield Buffer(instruction, 0, size, time, self.until.get(instruction, time), inner=inner)


def _reads_nothing(instruction: Instruction) -> bool:
    """Whether an instruction only passes on its operands."""
    op = instruction.op
    return op.shares_memory or op.role is Role.ELEMENT or op.is_view or isinstance(op, AsyncDone)


def _is_resident(instruction: Instruction) -> bool:
    """Whether memory is there for the whole run, whatever the computation does."""
    return instruction.op.role in (Role.PARAMETER, Role.CONSTANT)


def _sizes(shape: Shape) -> Iterator[int]:
    return (leaf.byte_size for leaf in shape.leaves())


def _sums(buffers: Sequence[Buffer], count: int) -> list[int]:
    """Returns the bytes of the buffers that live at each of `count` instructions."""
    changes = [0] * (count + 1)
    for buffer in buffers:
        changes[buffer.first] += buffer.size
        changes[buffer.last + 1] -= buffer.size
    return list(accumulate(changes[:-1]))


def state_pairs(loop: Instruction) -> Pairs:
    """Returns the pairs of a loop's body: each leaf of the state stays where it is."""
    return [(n, n) for n in range(body_of(loop).root.shape.num_leaves)]
