"""The backends that run programs: who computes their ops.

`reference` computes op by op with numpy: slow, and what the others are compared with. `native` fuses the program and
compiles its fusions to machine code; `numpy` runs the same fusions by numpy, block by block, as `native` does where
llvmlite or a fused multiply-add is missing.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext, run_pipeline
from ..passes.cleanup.equal_computations import EqualComputations
from ..passes.fusion.fuse import Fusion
from ..runtime.plan.kernels import NUMPY, KernelProvider

REFERENCE = "reference"
BACKENDS = (REFERENCE, "numpy", "native")


@dataclass(frozen=True)
class Backend:
    """One of `BACKENDS`, by name."""

    name: str = REFERENCE

    def prepared(self, module: Module) -> Module:
        """Returns the program as this backend runs it."""
        if self.name == REFERENCE:
            return module
        fused = clone_module(module)
        run_pipeline([EqualComputations(), Fusion()], fused, PassContext())
        return fused

    def kernels(self) -> KernelProvider:
        """Returns who computes the ops of one program."""
        if self.name == REFERENCE:
            return NUMPY
        from ..runtime.native.kernels import NativeKernels

        return NativeKernels(by_numpy=True if self.name == "numpy" else None)


BY_REFERENCE = Backend()


def backend_name(text: str) -> str:
    """Returns the name of a backend, also from the environment. Raises argparse.ArgumentTypeError for other words."""
    if text not in BACKENDS:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(BACKENDS)}")
    return text


def default_backend() -> str:
    """Returns the backend that HLOOM_BACKEND names, else `reference`."""
    return os.environ.get("HLOOM_BACKEND") or REFERENCE
