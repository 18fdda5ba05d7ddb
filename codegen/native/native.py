"""Machine code of kernels, compiled once per text in a process, and once per machine with a cache."""

from __future__ import annotations

from functools import lru_cache

from ...ir.disk_cache import cached, folder
from .compile_llvm import Loaded, host, object_code, version
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
    key = (text, version(), *host())
    return Loaded(cached(key, lambda: object_code(text, brief=True), folder()))
