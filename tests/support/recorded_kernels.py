"""Native kernels that record the instructions that they compute, and machine code of single instructions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from hloom.codegen.native.lowerings import Lowerings
from hloom.codegen.native.native_steps import native_parts
from hloom.codegen.native.step import StridedLayout
from hloom.ir.graph.instruction import Instruction
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.table import TableStep
from hloom.runtime.plan.interpreter import StepPlan

Array = np.ndarray[Any, Any]


class RecordedKernels(NativeKernels):
    """`native` records for each instruction whether native code computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.native: dict[Instruction, bool] = {}

    def arranged(self, plan: StepPlan, apart: bool = False) -> StepPlan:
        found = super().arranged(plan, apart)
        others = {s.instruction for p in found.all_plans() for s in p.steps if not isinstance(s, TableStep)}
        self.native |= {s.instruction: s.instruction not in others for p in plan.all_plans() for s in p.steps}
        return found


def layout_of(x: Array) -> StridedLayout:
    """Returns the layout of an array whose strides are multiples of its elements' size."""
    return StridedLayout(x.shape, tuple(stride // x.itemsize for stride in x.strides))


def by_machine_code(instruction: Instruction, operands: Sequence[Array]) -> list[Array] | None:
    """Returns the results of an instruction's machine code, which reads the operands as they lie; None if it has none
    for that.
    """
    parts = native_parts(instruction, [*map(layout_of, operands)], Lowerings())
    if parts is None:
        return None
    made = [np.empty(leaf.dims, leaf.element.numpy) for leaf in instruction.shape.leaves()]
    arrays = [*operands, *made, *(np.empty(s.dims, s.element.numpy) for s in parts.temporaries)]
    for step, numbers in parts.steps:
        used = [*(arrays[n] for n in numbers), *(np.empty(size, np.uint8) for size in step.scratch)]
        words = [*(x.ctypes.data for x in used), *step.words]
        block = (ctypes.c_int64 * len(words))(*words)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(step.function)(ctypes.addressof(block))
    return made
