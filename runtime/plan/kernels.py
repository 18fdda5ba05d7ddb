"""Kernel providers: who computes the values of a program.

Compiling a plan asks a provider once for every instruction that computes something, also in computations that ops apply
to elements, and for constants. A provider may compute all of them, or a few and leave the others to numpy. It may also
take a whole group of ops: an instruction that calls computations (a fusion, a call, a loop, a branch) is offered before
its ops are. What only an interpreter can run (communication, effects, the number of a device, its random state,
borders of manual regions) is never part of a group that is offered.

Numpy's kernel of an op that applies a computation may know that one (as a sum, say) instead of calling it: a provider
that gives `add` another meaning gives it to `reduce` as well.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Compile, Kernel
from ...ir.ops.control import Call, Conditional, Fusion, While
from ...ir.tools import mixed_precision
from ...ir.types.element_type import ElementType
from .dynamic_kernel import for_any_sizes

GROUPS = (Call, Fusion, While, Conditional)


class KernelProvider(Protocol):
    """Computes instructions. A provider that holds values in the program's own types computes what the ops mean; one
    with types of its own (`numpy_type`) says what they mean.
    """

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        """A function from the values of the operands to that of the instruction, called once per execution and device;
        tuples are values, too. None leaves the instruction to numpy, and a group to its ops.

        `compile` makes such a function of a computation. Values must not be written to; devices whose operands are the
        same arrays share one result. An op with a random state gets that of its device, a `RandomState`, first.

        Raises NotEvaluable for what has no meaning here: it is reported before the program runs.
        """
        ...

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        """The type of the arrays that hold numbers of an element type; None if there is none."""
        ...


class NumpyKernels:
    """The default: every op by its own kernel in numpy."""

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        if isinstance(instruction.op, GROUPS):
            return None
        kernel = mixed_precision.kernel(instruction, compile)
        return for_any_sizes(instruction.op, instruction.call, kernel, compile)

    def numpy_type(self, element: ElementType) -> np.dtype[Any] | None:
        return element.numpy


NUMPY = NumpyKernels()
