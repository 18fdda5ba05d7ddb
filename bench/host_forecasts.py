"""Compares forecasts with runs on this machine: programs that the calibration does not know, by native code.

    python bench/host_forecasts.py [NAME ..] [--rounds 3] [--middle]    # one device, all programs or those named so
    python bench/host_forecasts.py [NAME ..] --ranks 1,2,4 [--rounds 10]

Needs JAX, and MPI for several ranks (`host_ranks.py`). The calibration's programs and the others take turns in one
process, for some rounds, and the least processor time of each counts: then what else runs on the machine only takes its
part of caches and memory. Programs have no sharding, and the inputs of `hloom run`: with equal numbers everywhere
softmax makes subnormal ones, which take longer. Those of --middle are models between the small ones and the papers'.
Below the rows stand the median and the worst error, and Kendall's rank correlation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hloom
from hloom.cost.machine import Cluster
from hloom.driver.backend import NATIVE, Backend
from hloom.driver.calibration import NativePrograms, least_of
from hloom.driver.native_clock import native_clock
from hloom.driver.native_programs import native_programs
from hloom.frontends.jax import from_jax
from hloom.ir.graph.module import Module
from hloom.report.measured import kendall
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.calibrate import Timer
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.ranks.launch import finish_rank, inside_launcher

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from host_ranks import divided, on_ranks, run_ranks
from models import MODELS
from models.dense import FSDP, MEGATRON, Transformer, dense

ROOT = Path(__file__).parents[1]
EXAMPLES = ("mlp_train", "transformer_train", "transformer_scan_train")
LEFT_OUT = {"ring"}  # its manual region needs a partition
LONGEST = 0.05  # seconds for a program in a round


def programs(middle: bool) -> Iterator[tuple[str, Callable[[], Module]]]:
    """Yields names of programs, and functions that make them without shardings."""
    for name in EXAMPLES:
        yield name, lambda name=name: hloom.load(str(ROOT / "examples" / f"{name}.hlo"))
    for name, model in MODELS.items():
        if name not in LEFT_OUT:
            yield name, lambda model=model: model.small().module
    yield from jax_programs()
    if middle:
        for name, model, kind in middle_models():
            yield name, lambda model=model, kind=kind: dense(model, {"data": 2, "model": 4}, kind).module


def middle_models() -> Iterator[tuple[str, Transformer, Any]]:
    """Yields dense models between the small ones and the papers'."""
    base = Transformer(width=128, hidden=512, heads=8, head=16, vocabulary=512, sequence=64)
    yield "middle", base, MEGATRON
    yield "middle, long", replace(base, sequence=128, batch=4), MEGATRON
    yield "middle, remat", replace(base, remat=True), FSDP


def jax_programs() -> Iterator[tuple[str, Callable[[], Module]]]:
    """Yields functions of JAX: steps, losses, attention, scans and updates."""
    import jax
    import jax.numpy as jnp

    for name, (function, *given) in functions(jax, jnp).items():
        yield name, lambda function=function, given=given: from_jax(function, *given)


def functions(jax: Any, jnp: Any) -> dict[str, tuple[Any, ...]]:
    """Returns functions by name, each with the shapes of its arguments."""

    def shape(*dims: int, kind: str = "float32") -> Any:
        return jax.ShapeDtypeStruct(dims, kind)

    def attention(x: Any, w: Any, mask: Any) -> Any:
        q, k, v = (x @ w[n] for n in range(3))
        s = jnp.where(mask, q @ k.T / 8, -1e9)
        return jax.nn.softmax(s) @ v

    def mlp(w: Any, x: Any, y: Any) -> Any:
        for n in range(3):
            x = jnp.tanh(x @ w[n])
        return ((x - y) ** 2).mean()

    def norm(x: Any, w: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * w

    def rnn(w: Any, x: Any) -> Any:
        def step(h: Any, t: Any) -> Any:
            return jnp.tanh(h @ w + t), h.sum()

        return jax.lax.scan(step, x[0], x)[1].sum()

    def loss(logits: Any, labels: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def stencil(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))

        return jax.lax.fori_loop(0, 50, step, x)

    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v

    def image(k: Any, x: Any) -> Any:
        order = "NHWC", "HWIO", "NHWC"
        return jax.nn.relu(jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order))

    def swish(x: Any) -> Any:
        return jax.nn.sigmoid(x) * x

    def turned(x: Any) -> Any:
        return x.T + 1

    def summed(function: Any, place: int = 0) -> Any:
        def total(*arguments: Any) -> Any:
            return function(*arguments).sum()

        return jax.grad(total, place)

    w, mask = shape(3, 128, 128), shape(256, 256, kind="bool")
    labels = shape(256, kind="int32")
    return {
        "attention": (attention, shape(256, 128), w, mask),
        "attention, gradient": (summed(attention, 1), shape(256, 128), w, mask),
        "attention, bf16": (attention, shape(128, 128, kind="bfloat16"), shape(3, 128, 128, kind="bfloat16"),
                            shape(128, 128, kind="bool")),
        "mlp step": (jax.grad(mlp), w, shape(512, 128), shape(512, 128)),
        "mlp step, wide": (jax.grad(mlp), shape(3, 384, 384), shape(128, 384), shape(128, 384)),
        "layer norm": (norm, shape(1024, 256), shape(256)),
        "layer norm, gradient": (summed(norm), shape(512, 256), shape(256)),
        "recurrent": (rnn, shape(128, 128), shape(64, 32, 128)),
        "recurrent, gradient": (jax.grad(rnn), shape(64, 64), shape(64, 16, 64)),
        "cross entropy": (loss, shape(256, 1000), labels),
        "cross entropy, gradient": (jax.grad(loss), shape(256, 1000), labels),
        "stencil": (stencil, shape(128, 128)),
        "adam": (adam, *[shape(512, 512)] * 4),
        "convolution": (image, shape(3, 3, 32, 32), shape(4, 32, 32, 32)),
        "convolution, gradient": (summed(image), shape(3, 3, 16, 32), shape(4, 16, 16, 16)),
        "logistic": (swish, shape(1024, 1024)),
        "gelu": (jax.nn.gelu, shape(512, 512)),
        "transpose": (turned, shape(1024, 1024)),
        "product": (jnp.matmul, shape(384, 512), shape(512, 640)),
    }  # fmt: skip


@dataclass
class Row:
    """A program: what is prepared, and the seconds that were forecast and measured."""

    name: str
    module: Module
    run: Callable[[], float]
    measured: float = float("inf")
    forecast: float = 0.0


def one_device(names: list[str], rounds: int, middle: bool) -> list[Row]:
    """Measures and forecasts programs on one device."""
    keep_freed_memory()
    backend = Backend(NATIVE)
    timer = Timer(None, backend.kernels)
    calibration, rows = NativePrograms(timer, backend, native_programs()), list[Row]()
    for name, make in programs(middle):
        if names and not any(part in name for part in names):
            continue
        module = hloom.parse(make().to_text())
        hloom.strip_annotations(module)
        prepared = backend.prepared(module)
        rows.append(Row(name, module, timer.runner(prepared, inputs_for_module(prepared))))
    for _ in range(rounds):
        calibration.measure(LONGEST / 2)
        for row in rows:
            row.measured = min(row.measured, least_of(row.run, LONGEST))
    speed, error = calibration.fit()
    print(f"calibrated by {len(calibration.work)} other programs, half of them within {error:.0%}")
    machine = Cluster(native_speed=speed)
    for row in rows:
        row.forecast = forecast(row.module, machine)
    return rows


def forecast(module: Module, machine: hloom.Machine) -> float:
    """Returns the forecast seconds of a per-device program on this machine."""
    as_run = native_clock(module, machine)
    assert as_run is not None, "the machine was not calibrated for native code"
    return hloom.timeline(as_run[0], machine, as_run[1]).seconds


def several(names: list[str], ranks: int, rounds: int, middle: bool) -> list[Row]:
    """Measures and forecasts programs that are divided among ranks."""
    modules = dict[str, Module]()
    for name, make in programs(middle):
        if not names or any(part in name for part in names):
            local = divided(make(), ranks)
            if local is not None:
                modules[name] = local
    machine, seconds = on_ranks(Path(__file__), modules, ranks, rounds)
    return [
        Row(name, modules[name], lambda: 0.0, measured, forecast(modules[name], machine))
        for name, measured in seconds.items()
    ]


def show(rows: list[Row]) -> None:
    """Prints a row per program, and their errors."""
    print(f"{'':<26} {'measured':>12} {'forecast':>12} {'ratio':>6}")
    for row in rows:
        print(f"{row.name:<26} {1e6 * row.measured:>9,.0f} us {1e6 * row.forecast:>9,.0f} us "
              f"{row.forecast / row.measured:>6.2f}")  # fmt: skip
    errors = [abs(row.forecast / row.measured - 1) for row in rows]
    tau = kendall([row.measured for row in rows], [row.forecast for row in rows])
    within = sum(error <= 0.3 for error in errors)
    print(f"{len(rows)} programs: error {statistics.median(errors):.0%} in the median, {max(errors):.0%} at worst, "
          f"{within} within 30%; rank correlation {'none' if tau is None else f'{tau:.2f}'}", flush=True)  # fmt: skip


def main() -> int:
    """Reads the arguments and prints tables, or is one of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of programs")
    parser.add_argument("--rounds", type=int, default=3, help="turns of calibration and programs; steps on ranks")
    parser.add_argument("--middle", action="store_true", help="also models of middle size")
    parser.add_argument("--ranks", default="1", help="numbers of ranks, such as 1,2,4")
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if inside_launcher():
        return finish_rank(lambda: run_ranks(Path(arguments.folder), arguments.rounds))
    for ranks in map(int, arguments.ranks.split(",")):
        if ranks == 1:
            show(one_device(arguments.names, arguments.rounds, arguments.middle))
        else:
            print(f"{ranks} ranks")
            show(several(arguments.names, ranks, arguments.rounds, arguments.middle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
