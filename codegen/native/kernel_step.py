"""Loop kernels as native steps."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph.computation import Computation
from .lower import LoweredKernel, lower
from .native import native
from .step import NativeStep, StridedLayout


def kernel_step(computation: Computation, layouts: Sequence[StridedLayout]) -> NativeStep:
    """Compiles a computation whose parameters have `layouts`; results are dense.

    A computation of one transpose or copy becomes a copy in blocks that suit the cache. Raises NotEvaluable if no loop
    kernel computes it, ImportError without llvmlite.
    """
    return step_of(lower(computation, layouts))


def step_of(lowered: LoweredKernel) -> NativeStep:
    """Compiles a kernel. Raises ImportError without llvmlite."""
    code = native(lowered.kernel)
    lanes = lowered.kernel.buffers[len(lowered.parameters) + len(lowered.results) :]
    scratch = tuple(size * lane.bits // 8 for size, lane in zip(lowered.scratch, lanes, strict=True))
    return NativeStep(code.address, scratch, (), code)
