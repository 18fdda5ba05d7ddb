"""The interface between the partitioner of one computation and the handlers of structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ....ir.diagnostics import Diagnostics
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.sharding.tiling import Tiling
from ....ir.tools.spmd import Order
from ..emit.emitter import Emitter, LocalValue
from ..emit.resharder import Resharder

Leaves = list[LocalValue]


class Scope(Protocol):
    """The partitioner of the computation `source`, which builds `target`.

    `emitter` counts digits in the device order `order`.
    """

    source: Computation
    target: Computation
    order: Order
    emitter: Emitter
    resharder: Resharder

    @property
    def values(self) -> Mapping[Instruction, Leaves]:
        """The leaves of the instructions partitioned so far."""
        ...

    @property
    def module(self) -> Module:
        """The new module."""
        ...

    @property
    def diagnostics(self) -> Diagnostics: ...

    def tilings(self, instruction: Instruction) -> list[Tiling]:
        """Returns the propagated tilings of the leaves of a value."""
        ...

    def operands(self, instruction: Instruction) -> Leaves:
        """Returns the leaves of all operands, in order."""
        ...

    def reshard(self, leaves: Leaves, tilings: list[Tiling], why: str) -> Leaves:
        """Reshards each leaf to its tiling; `why` is part of the causes of collectives."""
        ...

    def pack(self, like: Instruction, leaves: Leaves) -> Instruction:
        """Packs the leaves into one instruction of the global value's structure: an array, or (nested) tuples."""
        ...

    def calling(self, instruction: Instruction) -> Instruction:
        """Returns the instruction as it is in the new module: with its computations and channel ids."""
        ...

    def generic(self, instruction: Instruction) -> Leaves:
        """Partitions the op generically, for instructions that turn out not to be structure."""
        ...

    def child(self, source: Computation) -> Scope:
        """Returns the scope of a computation that control flow calls."""
        ...

    def run(self) -> Leaves:
        """Partitions all instructions; returns the leaves of the root."""
        ...

    def finish(self, leaves: Leaves, tilings: list[Tiling], why: str) -> None:
        """Completes a computation that control flow calls: reshards and packs the root, and adds it to the module."""
        ...


Handler = Callable[[Scope, Instruction], Leaves]
