"""Measures the step time of a Llama-like training step on one core: Hloom by numpy and natively, and JAX.

    python bench/step.py [--configurations B A] [--runs 7]

Needs JAX, which also writes the program. Configuration A is bound by its matrix products (width 512, 8 layers, sequence
256, vocabulary 8192), B has many small ops (width 128, 24 layers, sequence 64, vocabulary 1024); both have batch 8,
grouped queries, f32 and plain gradient descent. All run in this process, on one core, alternating; freed memory is
kept, as by the command line. `matmuls` are the program's contractions alone, as contiguous products of the same sizes.
`compile` is the time to the first step; times are medians of wall time in ms, with the least in parentheses. Losses
must agree.
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hloom
import numpy as np
from hloom.cost.work import is_contraction
from hloom.ir.factors.sharding_rule import FactorKind
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.native.kernels import NativeKernels

Array = np.ndarray[Any, Any]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True)
class Configuration:
    width: int
    layers: int
    heads: int
    groups: int
    hidden: int
    vocabulary: int
    sequence: int
    batch: int


CONFIGURATIONS = {
    "A": Configuration(512, 8, 8, 4, 1408, 8192, 256, 8),
    "B": Configuration(128, 24, 4, 2, 384, 1024, 64, 8),
    "tiny": Configuration(32, 2, 4, 2, 64, 128, 16, 2),
}


def parameters(c: Configuration) -> dict[str, Array]:
    """Returns initial weights: by layer, and those of the embedding and the head."""
    rng = np.random.default_rng(0)
    size = c.width // c.heads * c.groups
    shapes = {"q": (c.width, c.width), "k": (c.width, size), "v": (c.width, size), "o": (c.width, c.width),
              "gate": (c.width, c.hidden), "up": (c.width, c.hidden), "down": (c.hidden, c.width)}  # fmt: skip
    found = {"embedding": (c.vocabulary, c.width), "head": (c.width, c.vocabulary)}
    found |= {f"{name}{n}": shape for n in range(c.layers) for name, shape in shapes.items()}
    weights = {name: (rng.standard_normal(shape) * 0.02).astype(np.float32) for name, shape in found.items()}
    norms = ["norm", *(f"{name}{n}" for n in range(c.layers) for name in ("before", "middle"))]
    return weights | {name: np.ones(c.width, np.float32) for name in norms}


def step_of(c: Configuration) -> Callable[..., Any]:
    """Returns the training step as a JAX function of weights, tokens and targets."""
    jax: Any = importlib.import_module("jax")
    jnp = jax.numpy
    size, per_group = c.width // c.heads, c.heads // c.groups
    angles = np.arange(c.sequence)[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    cosine, sine = (f(angles).astype(np.float32)[:, None] for f in (np.cos, np.sin))

    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    def rotate(x):
        left, right = jnp.split(x, 2, -1)
        return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)

    def attention(w, n, x):
        q, k, v = (jnp.dot(x, w[f"{m}{n}"]).reshape(*x.shape[:2], -1, size) for m in "qkv")
        q, k = rotate(q).reshape(*x.shape[:2], c.groups, per_group, size), rotate(k)
        scores = jnp.einsum("bqghd,bkgd->bghqk", q, k) * size**-0.5
        scores = jnp.where(np.tri(c.sequence, dtype=bool), scores, -1e30)
        mixed = jnp.einsum("bghqk,bkgd->bqghd", jax.nn.softmax(scores, -1), v)
        return mixed.reshape(x.shape) @ w[f"o{n}"]

    def loss(w, tokens, targets):
        x = w["embedding"][tokens]
        for n in range(c.layers):
            x = x + attention(w, n, norm(x, w[f"before{n}"]))
            h = norm(x, w[f"middle{n}"])
            x = x + (jax.nn.silu(h @ w[f"gate{n}"]) * (h @ w[f"up{n}"])) @ w[f"down{n}"]
        logits = norm(x, w["norm"]) @ w["head"]
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    def step(w, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(w, tokens, targets)
        return {name: w[name] - 0.1 * gradients[name] for name in w}, value

    return step


def matmuls(module: hloom.Module) -> Callable[[], None]:
    """Returns a function that computes products of the sizes of all contractions, contiguous ones."""
    sizes: Counter[tuple[int, int, int, int]] = Counter()
    for i in module.entry:
        if is_contraction(i):
            rule = i.op.sharding_rule(i.call)
            places = [{f for dim in value for f in dim} for value in rule.values()]
            product = [1, 1, 1, 1]
            for number, factor in enumerate(rule.factors):
                left, right = number in places[0], number in places[1]
                kind = 3 if factor.kind is FactorKind.REDUCTION else 0 if left and right else 1 if left else 2
                product[kind] *= factor.size
            sizes[product[0], product[1], product[2], product[3]] += 1
    rng = np.random.default_rng(0)
    work: list[tuple[int, Array, Array, Array]] = []
    for (batch, rows, columns, inner), count in sizes.items():
        left, right = (rng.standard_normal(s, np.float32) for s in ((batch, rows, inner), (batch, inner, columns)))
        work.append((count, left, right, np.empty((batch, rows, columns), np.float32)))

    def run() -> None:
        for count, left, right, out in work:
            for _ in range(count):
                np.matmul(left, right, out=out)

    return run


Step = Callable[[], float]


def ours(module: hloom.Module, inputs: list[Array], native: bool) -> Step:
    """Returns a function that runs one step and returns the loss."""
    runner: Any = importlib.import_module("hloom.runtime.evaluator").UnpartitionedProgram
    if native:
        passes: Any = importlib.import_module("hloom.passes.pipelines")
        base: Any = importlib.import_module("hloom.passes.base")
        pipeline = passes.parse_pipeline("equal-computations,call-inliner,cse,dce,fusion")
        base.run_pipeline(pipeline, module, base.PassContext())
    program = runner(module, NativeKernels()) if native else runner(module)
    return lambda: float(program.run(inputs)[-1])


def measure(name: str, runs: int) -> None:
    c = CONFIGURATIONS[name]
    jax: Any = importlib.import_module("jax")
    weights, rng = parameters(c), np.random.default_rng(1)
    tokens, targets = (rng.integers(0, c.vocabulary, (c.batch, c.sequence)).astype(np.int32) for _ in range(2))
    step = jax.jit(step_of(c))
    text = step.lower(weights, tokens, targets).as_text(dialect="hlo")
    inputs = [weights[k] for k in sorted(weights)] + [tokens, targets]

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
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read when numpy loads
    keep_freed_memory()  # as the command line does
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in arguments.configurations:
        measure(name, arguments.runs)


if __name__ == "__main__":
    main()
