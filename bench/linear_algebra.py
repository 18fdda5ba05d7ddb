"""Measures linear algebra on one core: Hloom beside JAX.

    python bench/linear_algebra.py [--runs 9] [name ..]

Needs JAX, which also writes the programs. Both take turns in one process on one core; figures are medians of processor
time in ms, and the median of the ratios to JAX in the same turn. The names are parts of names of rows. Results must
agree, but for vectors that are unique up to a factor only.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import hloom
import hloom.jax
import numpy as np
from hloom.runtime.allocator import keep_freed_memory

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Any], list[Array]]
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}  # fmt: skip


def cases(jax: Any) -> dict[str, Case]:
    """Returns functions and their inputs, by name."""
    rng, of, solve = np.random.default_rng(0), jax.numpy.linalg, jax.lax.linalg.triangular_solve

    def numbers(*dims: int, type: str = "f4") -> Array:
        return rng.standard_normal(dims).astype(type)

    def positive(*dims: int, type: str = "f4") -> Array:
        x = numbers(*dims, type="f8")
        return (x @ np.swapaxes(x, -1, -2) + dims[-1] * np.eye(dims[-1])).astype(type)

    def lower(a: Any, b: Any) -> Any:
        return solve(a, b, left_side=True, lower=True)

    def log_determinant(a: Any) -> Any:
        return jax.numpy.log(jax.numpy.diag(of.cholesky(a))).sum()

    def least_squares(a: Any, b: Any) -> Any:
        return of.lstsq(a, b)[0]

    def svd(a: Any) -> Any:
        return of.svd(a, full_matrices=False)

    return {
        "solve 20000 of 3x3": (of.solve, [positive(20000, 3, 3), numbers(20000, 3, 1)]),
        "solve 1000x1000": (of.solve, [positive(1000, 1000), numbers(1000, 10)]),
        "inv 10000 of 4x4": (of.inv, [positive(10000, 4, 4)]),
        "inv 2000 of 16x16": (of.inv, [positive(2000, 16, 16)]),
        "inv 200 of 64x64": (of.inv, [positive(200, 64, 64)]),
        "inv 512x512": (of.inv, [positive(512, 512)]),
        "slogdet 10000 of 4x4": (of.slogdet, [positive(10000, 4, 4)]),
        "slogdet 500x500": (of.slogdet, [positive(500, 500)]),
        "qr 20000 of 3x3": (of.qr, [numbers(20000, 3, 3)]),
        "qr 200 of 32x32": (of.qr, [numbers(200, 32, 32)]),
        "qr 4000x50": (of.qr, [numbers(4000, 50)]),
        "qr 1000x1000": (of.qr, [numbers(1000, 1000)]),
        "qr 1000x1000 f64": (of.qr, [numbers(1000, 1000, type="f8")]),
        "cholesky 5000 of 6x6": (of.cholesky, [positive(5000, 6, 6)]),
        "cholesky 2000 of 16x16": (of.cholesky, [positive(2000, 16, 16)]),
        "cholesky 1000x1000": (of.cholesky, [positive(1000, 1000)]),
        "cholesky 1000x1000 f64": (of.cholesky, [positive(1000, 1000, type="f8")]),
        "gradient of cholesky 400x400 f64": (jax.grad(log_determinant), [positive(400, 400, type="f8")]),
        "triangular 2000 of 16x16": (lower, [positive(2000, 16, 16), numbers(2000, 16, 16)]),
        "triangular 1000x1000 of 1": (lower, [positive(1000, 1000), numbers(1000, 1)]),
        "triangular 1000x1000 of 1000": (lower, [positive(1000, 1000), numbers(1000, 1000)]),
        "tridiagonal 500 of 200x200": (
            jax.lax.linalg.tridiagonal_solve,
            [numbers(500, 200), numbers(500, 200) + np.float32(3), numbers(500, 200), numbers(500, 200, 1)],
        ),
        "lstsq 1000x50": (least_squares, [numbers(1000, 50), numbers(1000, 1)]),
        "eigh 5000 of 3x3": (of.eigh, [positive(5000, 3, 3)]),
        "eigh 300x300": (of.eigh, [positive(300, 300)]),
        "svd 5000 of 3x3": (svd, [numbers(5000, 3, 3)]),
        "svd 300x200": (svd, [numbers(300, 200)]),
    }


def measure(jax: Any, name: str, function: Callable[..., Any], given: list[Array], runs: int) -> None:
    """Prints a row."""
    compiled, held = jax.jit(function), jax.device_put(tuple(given))
    program = hloom.compile(hloom.jax.from_jax(function, *held), backend="native")
    candidates: list[Callable[[], Any]] = [
        lambda: program.simulate(given), lambda: jax.block_until_ready(compiled(*held)),
    ]  # fmt: skip
    if not name.startswith(("eigh", "svd")):
        for found, wanted in zip(candidates[0](), jax.tree.leaves(candidates[1]()), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * float(np.max(np.abs(wanted))))
    times: list[list[float]] = [[], []]
    for turn in range(runs + 1):
        for run, kept in zip(candidates, times, strict=True):
            start = time.process_time()
            run()
            if turn:
                kept.append(time.process_time() - start)
    ours, theirs = (statistics.median(kept) * 1e3 for kept in times)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    print(f"{name:34} {ours:9.2f} {theirs:9.2f} {ratio:7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""])
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read when numpy loads
    keep_freed_memory()  # as the command line does
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax: Any = importlib.import_module("jax")
    print(f"{'':34} {'ms':>9} {'JAX':>9} {'/ JAX':>7}")
    for name, (function, given) in cases(jax).items():
        if any(part in name for part in options.names):
            measure(jax, name, function, given, options.runs)


if __name__ == "__main__":
    main()
