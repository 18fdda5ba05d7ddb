"""Finds the contents of a computation: the arrays that its instructions make, and who reads them.

A content is an array that an instruction makes; views of it are the same content. What is found here does not depend on
the order of the instructions, which `liveness` adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from .buffers import Leaf, makes_anew, rewritten, shared
from .lifetimes import RESIDENT


class Kernels(Protocol):
    """Tells which values lie in memory, and not only inside of a kernel, and which ones a kernel makes together."""

    def is_stored(self, value: Instruction, /) -> bool: ...
    def together(self, value: Instruction, /) -> Collection[Instruction]: ...


@brief
@dataclass(slots=True)
class Arrays:
    """The contents of a computation by number: the defining instruction, the leaf of its value, and the bytes."""

    makers: list[Instruction] = field(default_factory=list[Instruction])
    leaves: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])

    def add(self, maker: Instruction, leaf: int, size: int) -> int:
        """Adds a content and returns its number."""
        self.makers.append(maker)
        self.leaves.append(leaf)
        self.sizes.append(size)
        return len(self.sizes) - 1


class Contents:
    """The contents of one computation and their readers, which are the same in any order of its instructions.

    Contents have numbers; parameters come first. All instructions but the `others` make one array in memory of its own.
    `using` has the contents that an instruction makes, unless it is a parameter, and those that it reads. `results`
    maps the results of callees to their parameters.
    """

    def __init__(
        self, computation: Computation, results: Mapping[Computation, Sequence[Leaf]], kernels: Kernels | None = None
    ) -> None:
        self.computation, self.kernels = computation, kernels
        self.contents: dict[Instruction, list[int]] = {}
        self.made = Arrays()
        self.using: dict[Instruction, list[int]] = {}
        self.others: list[Instruction] = []
        for parameter in computation.parameters:
            self.contents[parameter] = [self.made.add(parameter, n, s) for n, s in enumerate(_sizes(parameter.shape))]
        self.parameters = len(self.made.sizes)
        self._find_contents(results)
        self.starts: list[Instruction] = []
        self.awaiting: dict[Instruction, list[Instruction]] = {}  # those that read a collective without a start
        self._find_waits()
        self.nests: dict[Instruction, Collection[Instruction]] = {}  # values that a kernel makes together
        self.fused: set[Instruction] = set()
        if kernels is not None:
            self._find_kernels(kernels)
        self.resident = [_is_resident(maker) for maker in self.made.makers]
        self.overwriting = {i: found for i in self.others if i.op.is_elementwise and (found := self._overwritten(i))}
        self.rewriting = {i: found for i in self.others
                          if i.operands and (found := rewritten(i))}  # fmt: skip

    def operands(self, instruction: Instruction) -> list[int]:
        """Returns the contents of all leaves of the operands."""
        if len(instruction.operands) == 1:
            return self.contents[instruction.operands[0]]
        return [content for operand in instruction.operands for content in self.contents[operand]]

    def _find_contents(self, results: Mapping[Computation, Sequence[Leaf]]) -> None:
        contents, made, using, others = self.contents, self.made, self.using, self.others
        for instruction in self.computation:
            if instruction in contents:
                continue
            op, shape = instruction.op, instruction.shape
            if makes_anew(op) and not shape.is_tuple:
                contents[instruction] = [number := made.add(instruction, 0, shape.device_bytes)]
                used = [number]
                if op.is_elementwise:
                    others.append(instruction)
            else:
                others.append(instruction)
                operands, leaves, first = self.operands(instruction), shared(instruction, results), len(made.sizes)
                contents[instruction] = [
                    made.add(instruction, n, size) if leaf is None else operands[leaf]
                    for n, (leaf, size) in enumerate(zip(leaves, _sizes(shape), strict=True))
                ]
                used = list(range(first, len(made.sizes)))
                if _reads_nothing(instruction):
                    using[instruction] = used
                    continue
            for operand in instruction.operands:
                used += contents[operand]
            using[instruction] = used

    def _find_waits(self) -> None:
        """Finds the starts and updates, and the readers of each collective without a start."""
        flying = InFlight[Instruction]()
        for instruction in self.computation:
            if instruction in flying.readers:
                for collective in flying.awaited(instruction):
                    self.awaiting[collective].append(instruction)
            op = instruction.op
            if not makes_anew(op) and (op.interface(Starts) or op.role is Role.UPDATE):
                self.starts.append(instruction)
            elif runs_apart(instruction):
                flying.start(instruction, instruction)
                self.awaiting[instruction] = []

    def _find_kernels(self, kernels: Kernels) -> None:
        """Takes no memory for values that are not stored."""
        for instruction, contents in self.contents.items():
            together = kernels.together(instruction)
            if len(together) > 1:
                self.nests[instruction] = together
            if len(contents) != 1 or self.made.makers[contents[0]] is not instruction or _is_resident(instruction):
                continue
            is_fused = instruction.shape.is_array and not (instruction.op.is_control or instruction.op.is_collective)
            if is_fused and not kernels.is_stored(instruction):
                self.made.sizes[contents[0]] = 0
                self.fused.add(instruction)

    def _overwritten(self, instruction: Instruction) -> list[int]:
        """Returns the contents of its size that an element-wise op may overwrite: it reads each element where it writes
        the result.
        """
        if instruction in self.fused or instruction in self.nests:
            return []
        contents, sizes, shape = self.contents, self.made.sizes, instruction.shape
        size = sizes[contents[instruction][0]]
        return [contents[o][0] for o in instruction.operands
                if sizes[contents[o][0]] == size and o.shape.is_ordered_like(shape)]  # fmt: skip


def _reads_nothing(instruction: Instruction) -> bool:
    """Whether an instruction only forwards its operands."""
    op = instruction.op
    return op.interface(PassesOn) is not None or memory(op).shares_memory or memory(op).is_view


def _is_resident(instruction: Instruction) -> bool:
    return instruction.op.role in RESIDENT


def _sizes(shape: Shape) -> Iterator[int]:
    return (leaf.device_bytes for leaf in shape.leaves())
