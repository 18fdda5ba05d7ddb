"""Machine code of kernels, compiled once per text in a process."""

from __future__ import annotations

from functools import lru_cache

from .compile_llvm import Loaded, object_code
from .expand import expand
from .llvm_text import llvm_text
from .loops import Kernel

Native = Loaded


def native(kernel: Kernel) -> Native:
    """Returns the machine code of a kernel. Raises ImportError without llvmlite."""
    return _compiled(llvm_text(expand(kernel)))


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Native:
    return Loaded(object_code(text))
