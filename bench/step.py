"""Measures the step time of a Llama-like training step (`llama_step`) on one core: Hloom by numpy and natively, and
JAX; with `--ranks`, on several ranks beside JAX and torch.

    python bench/step.py [--configurations B A] [--runs 7] [--ranks 1 2 4 [--kinds dp fsdp tp] [--buckets]]

Needs JAX, which also writes the program. On one core all run in this process, alternating; freed memory is kept, as by
the command line. `matmuls` are the program's contractions alone, as contiguous products of the same sizes. `compile` is
the time to the first step; times are medians of wall time in ms, with the least in parentheses. Losses must agree.

With `--ranks` each system runs in processes of its own, one thread each, pinned to cores; they take turns of three
steps. Hloom runs on MPI ranks, its program made by JAX with shardings and partitioned; JAX on virtual devices of one
process, and on processes over gloo; torch (eager and compiled on one rank, then DDP and FSDP2 over gloo) if it is
installed. Times are those of rank 0; `processor` is the processor time of one rank, with the turns of its waits, which
says more than wall time where other processes want the cores. `--buckets` compares Hloom's own programs instead: one
collective per array in the order of the text, those of a layer together, scheduled for the machine cpu-cluster, that
with flat parameters, and what native code does by itself; beside kinds that divide weights there is DP. Kinds are dp,
fsdp, tp, and fsdp_tp on a mesh of ranks / 2 x 2 (four ranks at least). The last columns are the peak of memory of rank
0: forecast, as `hloom memory` does for the fused program; of its arguments, arenas and all arrays that a step
allocates; and the shared memory that it writes.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from llama_step import CONFIGURATIONS, KINDS, batch, flat, least_devices, matmuls, parameters, step_of
from step_ranks import measure_ranks

Array = np.ndarray[Any, Any]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
STEPS = 3  # of a turn


Step = Callable[[], float]


def ours(module: hloom.Module, inputs: list[Array], native: bool) -> Step:
    """Returns a function that runs one step and returns the loss."""
    if native:
        module = hloom.run_passes(module, "equal-computations,call-inliner,cse,dce,fusion")
    program = UnpartitionedProgram(module, NativeKernels()) if native else UnpartitionedProgram(module)
    return lambda: float(program.run(inputs)[-1])


def measure(name: str, runs: int) -> None:
    c = CONFIGURATIONS[name]
    jax: Any = importlib.import_module("jax")
    weights, (tokens, targets) = parameters(c), batch(c)
    step = jax.jit(step_of(c))
    text = step.lower(weights, tokens, targets).as_text(dialect="hlo")
    inputs = flat(weights, tokens, targets)

    def compiled() -> Step:
        run = step.lower(weights, tokens, targets).compile()
        held = jax.device_put((weights, tokens, targets))
        return lambda: float(jax.block_until_ready(run(*held))[1])

    makers: dict[str, Callable[[], Step]] = {
        "Hloom, numpy": lambda: ours(hloom.parse(text), inputs, native=False),
        "Hloom, native": lambda: ours(hloom.parse(text), inputs, native=True),
        "JAX": compiled,
    }
    steps: dict[str, Step] = {}
    first: dict[str, float] = {}
    losses: dict[str, float] = {}
    for what, make in makers.items():
        start = time.perf_counter()
        steps[what] = make()
        losses[what] = steps[what]()
        first[what] = time.perf_counter() - start
    products = matmuls(hloom.parse(text))
    steps["matmuls"] = lambda: products() or math.nan
    times: dict[str, list[float]] = {what: [] for what in steps}
    for _ in range(runs):
        for what, run in steps.items():
            start = time.perf_counter()
            run()
            times[what].append(time.perf_counter() - start)
    jax_time, floor = (statistics.median(times[what]) for what in ("JAX", "matmuls"))
    print(f"{name}: {c}")
    print(f"{'':15} {'step ms':>18} {'/ JAX':>7} {'/ matmuls':>10} {'compile s':>10} {'loss':>10}")
    for what, found in times.items():
        middle = statistics.median(found)
        spread = f"{middle * 1e3:8.1f} ({min(found) * 1e3:7.1f})"
        rest = f"{first[what]:10.2f} {losses[what]:10.6f}" if what in first else ""
        print(f"{what:15} {spread:>18} {middle / jax_time:7.2f} {middle / floor:10.2f} {rest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", nargs="+", choices=list(CONFIGURATIONS), default=["B", "A"])
    parser.add_argument("--runs", type=int, default=7, help="of each, or turns of some steps")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a turn")
    parser.add_argument("--ranks", type=int, nargs="+", default=[])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--buckets", action="store_true",
                        help="compare Hloom's ways to combine and order collectives on ranks, in place of peers")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read when numpy loads
    if arguments.ranks:
        rows = [(name, kind, ranks) for name in arguments.configurations for ranks in arguments.ranks
                for kind in (arguments.kinds if ranks > 1 else KINDS[:1])
                if ranks >= least_devices(kind)]  # fmt: skip
        agree = [measure_ranks(*row, rounds=arguments.runs, steps=arguments.steps, buckets=arguments.buckets)
                 for row in rows]  # fmt: skip
        sys.exit(0 if all(agree) else "losses differ")
    keep_freed_memory()  # as the command line does
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in arguments.configurations:
        measure(name, arguments.runs)


if __name__ == "__main__":
    main()
