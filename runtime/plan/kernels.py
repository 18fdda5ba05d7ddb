"""Defines kernel providers, which compute the values of a program.

Compiling a plan asks a provider once for every instruction that computes something, including those in computations
that ops apply to elements, and constants. A provider may compute all of them, or a few and leave the others to numpy.
It may also take a whole group of ops: an instruction that calls computations (a fusion, a call, a loop, a branch) is
offered before its ops are. Operations that only an interpreter can run (communication, effects, the device number and
its random state, boundaries of manual regions) are never part of an offered group.

The numpy kernel of an op that applies a computation may recognise it (as a sum, say) instead of calling it. A provider
that gives `add` another meaning must therefore provide `reduce` as well.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...ir import origin
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import AnyOp, Compile, Kernel, NotEvaluable, OpCall, Role
from ...ir.graph.own_values import as_declared
from ...ir.tools import mixed_precision
from ...ir.types.element_type import ElementType
from ...ir.types.literal import Array
from .dynamic_kernel import for_any_sizes
from .interpreter import StepPlan

GROUPS = frozenset({Role.CALL, Role.FUSION, Role.LOOP, Role.BRANCH})


@runtime_checkable
class KernelProvider(Protocol):
    """Computes instructions. A provider whose values have the program's own types implements the meaning of the ops;
    one with other types (`numpy_type`) defines it.
    """

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        """Returns a function from the values of the operands to that of the instruction, called once per execution and
        device. A tuple is one value. None leaves the instruction to numpy, and a group to its ops.

        `compile` turns a computation into such a function. Values must not be written to; devices whose operands are
        the same arrays share one result. An op with a random state gets its device's `RandomState` as the first
        argument.

        Raises NotEvaluable for instructions that it cannot compute, which is reported before the program runs.
        """
        ...

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        """Returns the type of arrays that hold an element type; None if there is none."""
        ...

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        """Returns the sum of two arrays that hold an element type: parts of a result that is left unreduced."""
        ...


@runtime_checkable
class OwnZeros(Protocol):
    """A kernel provider with another zero than the types of its arrays have."""

    def zero(self, element: ElementType) -> np.generic[Any]:
        """Returns the value that changes no sum of an element type: that of parts of an unreduced value which hold
        nothing.
        """
        ...


def zero_of(kernels: KernelProvider, element: ElementType) -> np.generic[Any] | None:
    """Returns the provider's own zero of an element type; None if it is that of the type of its arrays."""
    return kernels.zero(element) if isinstance(kernels, OwnZeros) else None


@runtime_checkable
class PlanArranger(Protocol):
    """A kernel provider that also replaces steps of plans by others of the same meaning."""

    def arranged(self, plan: StepPlan, apart: bool = False) -> StepPlan:
        """Returns the plan to run; for observers with one step per instruction (`apart`)."""
        ...


class StackedKernel:
    """A kernel that also takes a stack of uses: all operands may have one more dimension in front, which the result
    then has. So a step calls it once for all devices.
    """

    __slots__ = ("kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, *operands: Any) -> Any:
        return self.kernel(*operands)


class NumpyKernels(KernelProvider):
    """Computes every op by its own numpy kernel. This is the default."""

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        if instruction.op.role in GROUPS:
            return None
        op = instruction.op

        def make(call: OpCall[Any]) -> Kernel:
            kernel = op.kernel(call, compile)
            return _checked(kernel, call, op) if origin.is_foreign(op) else kernel

        return for_any_sizes(op, instruction.call, mixed_precision.kernel(instruction, make), make)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return element.numpy

    def add(self, element: ElementType, x: Array, y: Array) -> Array:
        return x + y


def _checked(kernel: Any, call: OpCall[Any], op: AnyOp) -> Kernel:
    """Makes the kernel of an op that is not Hloom's check its results."""
    name = f"the kernel of {op.opcode}"
    if not callable(kernel):
        raise NotEvaluable(f"{name} is a {type(kernel).__name__}, not a function",
                           "Op.kernel returns a function of numpy arrays")  # fmt: skip
    return lambda *operands: as_declared(kernel(*operands), call.shape, name)


NUMPY = NumpyKernels()
