"""Machine code of kernels, compiled once per text in a process, and once per machine with a cache."""

from __future__ import annotations

from functools import lru_cache

from .compile_llvm import Loaded, kept_code
from .expand import expand
from .llvm_text import llvm_text
from .loops import Kernel

Native = Loaded


def native(kernel: Kernel) -> Native:
    """Returns the machine code of a kernel. Raises ImportError without llvmlite."""
    return _compiled(llvm_text(expand(kernel)))


def forget() -> None:
    """Forgets the machine code of this process; the cache on disk stays."""
    _compiled.cache_clear()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Native:
    return Loaded(kept_code(text, brief=True))
