"""The backends that run programs: who computes their ops.

`reference` computes op by op with numpy; the other is compared with it. `native` fuses the program and compiles it to
machine code; where llvmlite or a fused multiply-add is missing, it acts as `reference`, with a remark. `auto` takes
`native` where it exists and saves more time than fusing and compiling take (see `cost/kernels`), otherwise `reference`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, replace
from typing import Any

from ..cost.kernels import is_worth_compiling
from ..ir.brief import brief
from ..ir.diagnostics import Diagnostics
from ..ir.graph.module import Module, clone_module
from ..ir.tools.process_grid import ProcessGrid
from ..runtime.plan.executable import Executable
from ..runtime.plan.kernels import NUMPY, KernelProvider
from ..runtime.ranks.failed import deadline, gather_texts

REFERENCE, NATIVE, AUTO = "reference", "native", "auto"
BACKENDS = (AUTO, NATIVE, REFERENCE)
_NEEDS = "native code needs llvmlite (pip install 'hloom[native]') and a processor with a fused multiply-add"


@brief
@dataclass(frozen=True)
class Backend:
    """A backend by name, `auto` excepted. `known` is a program and its prepared form, which are kept together."""

    name: str = REFERENCE
    known: tuple[Module, Module] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def chosen(name: str, module: Module, times: float = 1) -> Backend:
        """Returns the backend of this name. `auto` decides for a process that runs `times` devices, or runs of one
        device, one after the other; infinitely many where only the time of a step counts.
        """
        if name != AUTO:
            return Backend(name)
        return Backend(NATIVE if is_worth_compiling(module, times) and has_native_code() else REFERENCE)

    @staticmethod
    def fastest(name: str) -> Backend:
        """Returns the backend of this name for a process that runs for long: `auto` is native code if it is there."""
        return Backend((NATIVE if has_native_code() else REFERENCE) if name == AUTO else name)

    def reason(self, asked: str) -> str:
        """Tells why a program that runs for long has this backend."""
        if asked == self.acting:
            return "as asked for"
        if self.acting == NATIVE:
            return "the fastest for a program that runs for long"
        return "native code saves nothing here" if has_native_code() else f"there is no native code here: {_NEEDS}"

    @property
    def acting(self) -> str:
        """The name of the backend that runs here: that of this one if it can."""
        return self.name if self.name == REFERENCE or has_native_code() else REFERENCE

    def prepared(self, module: Module) -> Module:
        """Returns the program as this backend runs it."""
        if self.acting == REFERENCE:
            return module
        if self.known is not None and self.known[0] is module:
            return self.known[1]
        from ..passes.base import PassContext, run_pipeline
        from ..passes.cleanup.equal_computations import EqualComputations
        from ..passes.cleanup.inline import CallInliner, grows_little
        from ..passes.fusion.fuse import FusionPass
        from ..passes.schedule.combine_collectives import CombineCollectives

        fused = clone_module(module)
        combine = [] if module.has_schedule else [CombineCollectives()]  # a schedule has its buckets
        inline = [CallInliner()] if grows_little(fused) else []  # programs per device have no calls left
        run_pipeline([*inline, EqualComputations(), *combine, FusionPass()], fused, PassContext())
        return fused

    def knowing(self, module: Module) -> Backend:
        """Returns the same backend, which has prepared a program once for all runs of it."""
        return self if self.acting == REFERENCE else replace(self, known=(module, self.prepared(module)))

    def kernels(self) -> KernelProvider:
        """Returns who computes the ops of one program."""
        if self.acting == REFERENCE:
            return NUMPY
        from ..runtime.native.kernels import NativeKernels

        return NativeKernels()

    def executable(self, module: Module) -> Executable:
        """Returns a program compiled for this backend. Raises CompileError if it cannot be run."""
        prepared = self.prepared(module)
        return Executable(prepared, ProcessGrid.of(prepared), self.kernels())

    def remark(self, diagnostics: Diagnostics) -> None:
        """Remarks that numpy takes the place of native code that was asked for and is missing here."""
        if self.acting != self.name:
            diagnostics.remark("there is no native code here: numpy runs the program op by op", help=_NEEDS)

    def common(self, comm: Any, diagnostics: Diagnostics, timeout: float | None) -> Backend:
        """Returns the backend that all ranks can run, and remarks on rank 0 where it is another one. Native code and
        numpy round differently, and devices that hold the same tile must agree to the bit.

        Raises RankFailed if a rank does not arrive before the deadline.
        """
        if self.name != NATIVE:
            return self
        own = "" if has_native_code() else socket.gethostname()
        hosts = gather_texts(comm, own, "the choice of a backend", deadline(timeout))
        lacking = sorted({host for host in hosts if host})
        if not lacking:
            return self
        if comm.rank == 0 and not all(hosts):  # elsewhere it is known before
            where = ", ".join(lacking)
            message = f"there is no native code on {where}: numpy runs the program on all ranks"
            diagnostics.remark(message, help=_NEEDS)
        return BY_REFERENCE


BY_REFERENCE = Backend()


def default_backend() -> str:
    """Returns the name of the backend that commands take where none is given."""
    return os.environ.get("HLOOM_BACKEND") or AUTO


def has_native_code() -> bool:
    """Whether this process can compile and run native kernels."""
    from ..codegen.native.compile_llvm import is_available

    return is_available()

