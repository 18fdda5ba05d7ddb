"""Finds a BLAS library in this process or among the installed packages, and the addresses of its products.

First come the packages scipy-openblas64 and scipy-openblas32, then the library that numpy itself is linked to. Names
tell the width of integers: those with `64_` take 64 bits.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("scipy_openblas64", "scipy_openblas32")
NUMPY = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")  # since numpy 2, and before
# The prefix and suffix of functions, and the bits of their integers.
NAMES = (("scipy_cblas_", "64_", 64), ("cblas_", "64_", 64), ("scipy_cblas_", "", 32), ("cblas_", "", 32))


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS library: the bits of its integers, and the addresses of `cblas_?gemm` and `cblas_?gemv` by bits of floats.

    `library` keeps it loaded. `threads` are functions that get and set the number of threads.
    """

    path: str
    integer: int
    gemm: dict[int, int]
    gemv: dict[int, int]
    library: ctypes.CDLL
    threads: tuple[Callable[[], int], Callable[[int], None]] | None = None

    @property
    def asking(self) -> int:
        """The address of the function that returns the number of threads; 0 if there is none."""
        return _value(self.threads[0]) if self.threads else 0

    @contextmanager
    def single_threaded(self) -> Generator[None]:
        """Computes products by one thread each while the block runs."""
        if self.threads is None:
            yield
            return
        get, set = self.threads
        before = get()
        set(1)
        try:
            yield
        finally:
            set(before)


@cache
def blas() -> Blas | None:
    """Returns the library that computes products; None if there is none, or if it fails on a small product."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        found = _functions(path, library)
        if found is not None and _computes(found):
            return found
    return None


def _candidates() -> Iterator[str]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from sorted(map(str, Path(folder, "lib").glob("libscipy_openblas*")))
    for name in NUMPY:
        module = sys.modules.get(name)
        if module is not None and module.__file__:
            yield module.__file__  # symbols are also looked for in the libraries that it needs


def _functions(path: str, library: ctypes.CDLL) -> Blas | None:
    for prefix, suffix, integer in NAMES:
        gemm, gemv = ({bits: _address(library, f"{prefix}{t}{routine}{suffix}") for bits, t in ((32, "s"), (64, "d"))}
                      for routine in ("gemm", "gemv"))  # fmt: skip
        if all(gemm.values()) and all(gemv.values()):
            return Blas(path, integer, gemm, gemv, library, _threads(library, prefix.removesuffix("cblas_"), suffix))
    return None


def _threads(
    library: ctypes.CDLL, prefix: str, suffix: str
) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    try:
        get, set = (library[f"{prefix}openblas_{verb}_num_threads{suffix}"] for verb in ("get", "set"))
    except AttributeError:
        return None
    return get, set


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        return _value(library[name])
    except AttributeError:
        return 0


def _value(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _computes(found: Blas) -> bool:
    """Whether [[1, 2], [3, 4]] times [5, 6] is [17, 39] with integers of this width."""
    integer = ctypes.c_int64 if found.integer == 64 else ctypes.c_int32
    for bits, real in ((32, ctypes.c_float), (64, ctypes.c_double)):
        left, right, out = (real * 4)(1, 2, 3, 4), (real * 2)(5, 6), (real * 2)(7, 7)
        array = (ctypes.c_void_p, integer)
        gemm = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 3, *[integer] * 3, real, *array, *array, real, *array)
        gemm(found.gemm[bits])(101, 111, 111, 2, 1, 2, 1, left, 2, right, 1, 0, out, 1)
        if list(out) != [17, 39]:
            return False
    return True
