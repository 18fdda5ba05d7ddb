"""Library calls: in programs that XLA compiled for GPUs, those of cuBLAS, cuDNN and CUB become the ops that they
compute. Products and convolutions then have rules of sharding, and their work is known.

    before:  g = (f32[8,4], s8[1024]) custom-call(x, w), custom_call_target="__cublas$gemm", backend_config={..}
    after:   d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
             g = (f32[8,4], s8[1024]) tuple(d, s)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.module import Module
from ...ir.tools.library_calls import expand_library_calls, has_library_calls
from ..base import Pass, PassContext


@dataclass(frozen=True)
class LibraryCalls(Pass):
    """Replaces calls of libraries by the ops that they compute."""

    name: ClassVar[str] = "library-calls"

    def is_idle(self, module: Module) -> bool:
        return not has_library_calls(module)

    def run(self, module: Module, context: PassContext) -> bool:
        return expand_library_calls(module)
