"""Measures attention: Hloom with products in blocks and with whole ones, JAX, and torch if it is installed.

    python bench/attention.py [--lengths 256 512 1024] [--runs 15] [--batch 2] [--heads 8] [--width 64] [--peak 1]

Needs JAX, which also writes the programs. All take turns in one process on one core; figures are medians of processor
time in ms, with the least in parentheses, the median of the ratios to JAX in the same turn, and Hloom's temporary
memory as `hloom memory` tells it. Results must agree. --peak multiplies the scores: with 30, most probabilities are 0
and many subnormal.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.fusion.fuse import FusionPass
from hloom.passes.named import parse_pipeline
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels

Array = np.ndarray[Any, Any]
Run = Callable[[], Array]
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}  # fmt: skip


def attention(jax: Any, causal: bool) -> Callable[..., Any]:
    """Returns softmax attention of arrays [batch, length, heads, width]."""

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = jax.numpy.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        if causal:
            scores = jax.numpy.where(np.tri(q.shape[1], dtype=bool), scores, -1e30)
        return jax.numpy.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    return function


def ours(text: str, given: list[Array], blocks: bool) -> tuple[Run, int]:
    """Returns a function that runs a program, and its bytes of temporary memory."""
    module = hloom.parse(text)
    run_pipeline(parse_pipeline("equal-computations,call-inliner,cse,dce"), module, PassContext())
    run_pipeline([FusionPass(blocks=blocks)], module, PassContext())
    program = UnpartitionedProgram(module, NativeKernels())
    return lambda: np.asarray(program.run(given)[0]), hloom.live_memory(module).temporary


def in_torch(given: list[Array], causal: bool) -> Run:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    q, k, v = (torch.from_numpy(x).transpose(1, 2) for x in given)
    product: Any = torch.nn.functional.scaled_dot_product_attention
    return lambda: product(q, k, v, is_causal=causal).transpose(1, 2).numpy()


def measure(given: list[Array], causal: bool, runs: int) -> None:
    jax: Any = importlib.import_module("jax")
    lowered = jax.jit(attention(jax, causal)).lower(*given)
    compiled, held = lowered.compile(), jax.device_put(tuple(given))
    text = lowered.as_text(dialect="hlo")
    blocks, small = ours(text, given, blocks=True)
    whole, large = ours(text, given, blocks=False)
    candidates: dict[str, Run] = {
        "blocks": blocks, "whole": whole, "JAX": lambda: jax.block_until_ready(compiled(*held)),
    }  # fmt: skip
    if importlib.util.find_spec("torch") is not None:
        candidates["torch"] = in_torch(given, causal)
    wanted = np.asarray(candidates["JAX"]())
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        np.testing.assert_allclose(run(), wanted, rtol=1e-4, atol=1e-5)
    for _ in range(runs):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    memory = {"blocks": small, "whole": large}
    for name, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, times["JAX"], strict=True))
        bytes_ = f"{memory[name] / 2**20:9.1f}" if name in memory else ""
        row = f"{statistics.median(found) * 1e3:9.2f} ({min(found) * 1e3:8.2f}) {ratio:7.2f} {bytes_}"
        print(f"{given[0].shape[1]:6} {'causal' if causal else 'all':7} {name:7} {row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--peak", type=float, default=1.0)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read when numpy loads
    keep_freed_memory()  # as the command line does
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    print(f"{'length':6} {'mask':7} {'':7} {'ms':>20} {'/ JAX':>7} {'MiB':>9}")
    for length in options.lengths:
        shape = (options.batch, length, options.heads, options.width)
        given = [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
        given[0] *= np.float32(options.peak)
        for causal in (False, True):
            measure(given, causal, options.runs)


if __name__ == "__main__":
    main()
