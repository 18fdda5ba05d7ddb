"""Native kernels that record the instructions that they compute."""

from __future__ import annotations

from hloom.cost.host import HOST
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Compile, Kernel
from hloom.runtime.native.kernels import NativeKernels


class RecordedKernels(NativeKernels):
    """`native` records for each instruction whether it has a native kernel."""

    def __init__(self, small: int = HOST.numpy_elements, by_numpy: bool | None = None) -> None:
        super().__init__(small, by_numpy)
        self.native: dict[Instruction, bool] = {}

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        found = super().kernel(instruction, compile)
        self.native[instruction] = found is not None
        return found
