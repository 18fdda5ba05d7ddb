"""Measures fused kernels: native code, numpy op by op, JAX, and a copy of the first array.

    python bench/kernels.py [--rows 2048] [--columns 2048] [--seconds 1] [--without-jax]

Needs llvmlite. Candidates take turns in one process on one core; figures are the least wall time of a call in
microseconds, and the ratio of native code to the copy of one array: the median of the ratios of `ROUNDS` parts of the
time, in each of least times. `goal` is 1.2 times the ratio of hand-written kernels, beside a copy of 16 MB in 1000 us
(of 64 MB in 5223). Arrays begin at lines of the cache, as in the arena of a program. JAX's times include fresh output
pages; all others but numpy's op by op write into arrays made before.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
from fusion_programs import BODIES, in_jax, text
from hloom.codegen.native.lower import LoweredKernel, lower
from hloom.codegen.native.native import native
from hloom.frontends import parse

Array = np.ndarray[Any, Any]
Action = Callable[[], Any]


ROUNDS = 7
LINE = 64  # bytes
# Microseconds of hand-written kernels on f32[2048,2048], and of row max + sum exp on f32[512,32768].
GOALS = {
    "softmax": 1626, "gelu-tanh": 1547, "bias+gelu+residual": 1619, "silu(x)*y": 1544, "layernorm": 1376,
    "rmsnorm": 817, "rmsnorm backward": 2530, "AdamW": 3285, "row max + sum exp": 6067 / 5.223,
}  # fmt: skip


def best(candidates: dict[str, Action], seconds: float) -> dict[str, float]:
    """Returns the least seconds of each candidate; they take turns."""
    found = {name: float("inf") for name in candidates}
    end = time.perf_counter() + seconds * len(candidates)
    while time.perf_counter() < end:
        for name, action in candidates.items():
            start = time.perf_counter()
            action()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def measured(candidates: dict[str, Action], seconds: float) -> tuple[dict[str, float], float]:
    """Returns the least seconds of each candidate, and the ratio of native code to the copy."""
    for action in candidates.values():
        action()
    rounds = [best(candidates, seconds / ROUNDS) for _ in range(ROUNDS)]
    least = {name: min(r[name] for r in rounds) for name in candidates}
    return least, statistics.median(r["native"] / r["copy"] for r in rounds)


def aligned(x: Array) -> Array:
    """Returns a copy of an array that begins at a line of the cache."""
    memory = np.empty(x.nbytes + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    found = memory[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def arrays(lowered: LoweredKernel) -> list[Array]:
    """Returns the buffers of a kernel, parameters filled with random numbers; second moments are positive."""
    rng = np.random.default_rng(0)
    shapes = [*lowered.parameters, *lowered.results]
    found = [np.abs(rng.standard_normal(s.dims, np.float32)) for s in shapes]
    lanes = lowered.kernel.buffers[len(shapes) :]
    found += [np.zeros(n * lane.bits // 8, np.uint8) for n, lane in zip(lowered.scratch, lanes, strict=True)]
    return [aligned(x) for x in found]


def candidates(name: str, rows: int, columns: int, jax: Any) -> dict[str, Action]:
    module = parse(text(name, rows, columns))
    lowered = lower(module.entry)
    buffers = arrays(lowered)
    inputs = buffers[: len(lowered.parameters)]
    table = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    code = native(lowered.kernel)
    copy = aligned(inputs[0])
    found: dict[str, Action] = {
        "native": lambda: code.run(ctypes.addressof(table)),
        "numpy": lambda: hloom.evaluate(module, inputs),
        "copy": lambda: np.copyto(copy, inputs[0]),
    }
    if jax is not None:
        function = jax.jit(in_jax(jax, importlib.import_module("jax.numpy"))[name])
        given = [jax.numpy.asarray(x) for x in inputs]
        found["jax"] = lambda: jax.block_until_ready(function(*given))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each candidate")
    parser.add_argument("--without-jax", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax: Any = None if options.without_jax else importlib.import_module("jax")
    names = ["native", "numpy", *([] if jax is None else ["jax"]), "copy"]
    print(f"{'us':20}" + "".join(f"{n:>15}" for n in names) + f"{'native/copy':>13}{'goal':>7}")
    for name in BODIES:
        rows, columns = (options.rows, options.columns)
        if name.startswith("row max"):
            rows, columns = max(1, rows // 4), columns * 16
        times, ratio = measured(candidates(name, rows, columns, jax), options.seconds)
        row = "".join(f"{times[n] * 1e6:15.1f}" for n in names)
        print(f"{name:20}{row}{ratio:13.2f}{1.2 * GOALS[name] / 1000:7.2f}", flush=True)


if __name__ == "__main__":
    main()
