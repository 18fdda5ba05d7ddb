"""One computation being partitioned, as the handlers of structure see it."""

from __future__ import annotations

from collections.abc import Callable
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

    `values` has the leaves of what is partitioned so far. `order` is the device order in which `emitter` counts.
    """

    source: Computation
    target: Computation
    order: Order
    emitter: Emitter
    resharder: Resharder
    values: dict[Instruction, Leaves]

    @property
    def module(self) -> Module:
        """The new module."""
        ...

    @property
    def diagnostics(self) -> Diagnostics: ...

    def tilings(self, instruction: Instruction) -> list[Tiling]:
        """The tilings that propagation gave the leaves of a value."""
        ...

    def operands(self, instruction: Instruction) -> Leaves:
        """The leaves of all operands, in order."""
        ...

    def reshard(self, leaves: Leaves, tilings: list[Tiling], why: str) -> Leaves:
        """Brings each leaf into its tiling; `why` ends up in the causes of collectives."""
        ...

    def pack(self, like: Instruction, leaves: Leaves) -> Instruction:
        """One instruction with the leaves as the global value's shape has them: an array, or (nested) tuples."""
        ...

    def calling(self, instruction: Instruction) -> Instruction:
        """The instruction as if it stood in the new module: with its computations, and its channel numbers."""
        ...

    def generic(self, instruction: Instruction) -> Leaves:
        """Divides the op: whatever is no structure after all goes this way."""
        ...

    def child(self, source: Computation) -> Scope:
        """The scope of a computation that control flow calls."""
        ...

    def run(self) -> Leaves:
        """Partitions all instructions; the leaves of the root."""
        ...

    def finish(self, leaves: Leaves, tilings: list[Tiling], why: str) -> None:
        """Ends a computation that control flow calls: the root gets the tilings, the module the computation."""
        ...


Handler = Callable[[Scope, Instruction], Leaves]
