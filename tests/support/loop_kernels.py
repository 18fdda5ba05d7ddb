"""Runs kernels of the loop IR: compiled by LLVM for several processors, by the C compiler, and by numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native import compile_llvm
from hloom.codegen.native.builder import Builder
from hloom.codegen.native.llvm_text import llvm_text
from hloom.codegen.native.loops import Access, Function, Kernel, Lane, Node
from hloom.codegen.native.native import expand
from hloom.cost.host import HOST
from support.c_kernels import compile_c
from support.c_kernels.c_text import c_text
from support.numpy_run import run_by_numpy

Array = np.ndarray[Any, Any]
Run = Callable[[Kernel, Sequence[Array]], None]

# Processors with a fused multiply-add, and the features of the host that show that it can run their code.
CPUS = {"haswell": "avx2", "znver3": "vaes", "skylake-avx512": "avx512dq", "znver4": "avx512bf16"}

needs_llvm = pytest.mark.skipif(not compile_llvm.is_available(), reason="needs llvmlite and a fused multiply-add")


def addresses(arrays: Sequence[Array]) -> Any:
    """The array of addresses that compiled kernels take."""
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def run_by_llvm(kernel: Kernel, arrays: Sequence[Array], cpu: str = "", large: int = HOST.streamed) -> None:
    text = llvm_text(expand(kernel), large=large)
    code = compile_llvm.Loaded(compile_llvm.object_code(text, cpu))
    table = addresses(arrays)
    code.run(ctypes.addressof(table))


def run_by_c(kernel: Kernel, arrays: Sequence[Array]) -> None:
    native = compile_c.compiled(c_text(expand(kernel)))
    table = addresses(arrays)
    native(ctypes.addressof(table))


def ways(everywhere: bool = False) -> dict[str, Run]:
    """The ways to run a kernel here, the first being LLVM for this processor; LLVM for the others is the oldest of them
    unless `everywhere`.
    """
    features = compile_llvm.host()[1] if compile_llvm.is_available() else ""
    found: dict[str, Run] = {}
    if features:
        found["llvm"] = run_by_llvm
    for cpu, feature in CPUS.items() if everywhere else [*CPUS.items()][:1]:
        if f"+{feature}" in features.split(","):
            found[f"llvm {cpu}"] = lambda kernel, arrays, cpu=cpu: run_by_llvm(kernel, arrays, cpu)
    if compile_c.compiler():
        found["c"] = run_by_c
    found["numpy"] = run_by_numpy
    return found


def elementwise(lanes: Sequence[Lane], results: Callable[..., Sequence[Node]], size: int, unroll: int = 2) -> Kernel:
    """A kernel that stores the results of a function of arrays with these types."""
    b = Builder(0)
    made = results(b, *[b.load(Access(n, 0, (1,)), lane) for n, lane in enumerate(lanes)])
    for n, node in enumerate(made):
        b.store(Access(len(lanes) + n, 0, (1,)), node)
    return Kernel((*lanes, *(node.lane for node in made)), (b.finish((), size, unroll),))


def called(function: Function, lane: Lane, arity: int, size: int) -> Kernel:
    """A kernel that applies a function to arrays. It is not unrolled: expansions are long to compile as it is."""

    def results(b: Builder, *x: Node) -> list[Node]:
        return [b.call(function, *x)]

    return elementwise([lane] * arity, results, size, unroll=1)


def same_bits(x: Array, y: Array) -> bool:
    """Whether arrays have the same bits, up to which NaN it is."""
    if x.dtype.kind == "f":
        x, y = np.where(np.isnan(x), np.nan, x).astype(x.dtype), np.where(np.isnan(y), np.nan, y).astype(y.dtype)
    return x.dtype == y.dtype and x.tobytes() == y.tobytes()
