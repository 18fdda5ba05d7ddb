"""Measures each step of compiling a Llama-like training step, against XLA, for many layers and many devices.

    PYTHONPATH=.import python bench/llama_compile.py [--layers 16 32 64] [--devices 8 512 16384] [--runs 3] [--no-xla]

Needs JAX. The model is that of `examples/transformer.py` (RMSNorm, rotary positions, SwiGLU, Adam) with the sizes of
Llama 3.1 405B and its layers written out. Activations between blocks are divided by batch, weights and moments in two
ways: `both` over both axes of a data x model mesh, `fsdp` over one axis of all devices. Nothing else is annotated.

A row has processor seconds from text to text with empty caches, those of the fastest run: parse, propagate (in it:
refine), partition, print; beside them those of the schedule and its forecast on the default machine. For the fewest
devices XLA compiles the same text for eight virtual CPU devices, in a process of its own between the runs; its
processor time includes code generation for the CPU. `XLA's own` are the seconds of its propagation and partitioning
alone, as its log says, by the clock (each runs in one thread; other work on the machine makes them more); the ratio is
to those of Hloom. GB are those that a device sends, and `ms` is the time of these collectives on the default machine.
The first of `--layers` is measured for all devices.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import hloom
from hloom.cost.formulas import Kind
from hloom.cost.machine import DEFAULT
from hloom.frontends.hlo_text.shardings import parse_sharding
from hloom.ir.gc_pause import paused_collector
from hloom.passes.base import PassContext
from hloom.passes.propagation import propagate as propagation
from hloom.passes.resharding.plan import plan_reshard
from hloom.passes.scheduling import schedule
from hloom.report.forecast import forecast_of

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

T = TypeVar("T")
COMPILE = Path(__file__).with_name("compile_scaling.py")

SIZES = {"batch": 16384, "sequence": 4096, "width": 16384, "heads": 128, "hidden": 53248, "vocabulary": 128256}
MESHES = {8: (2, 4), 64: (8, 8), 512: (16, 32), 4096: (64, 64), 16384: (128, 128)}
WEIGHTS = ("both", "fsdp")
HEADER = ("weights  layers  devices  instr.  parse  propagate (refine)  partition  print  total  schedule  forecast |"
          "  XLA s  ratio  XLA's own  ratio | GB sent      ms")  # fmt: skip
_PASS = re.compile(r"HLO pass: (?:shardy-xla|sharding-propagation|spmd-partitioning) time: .*?\((\d+) us\) \(cum")


def program(weights: str, layers: int, devices: int) -> str:
    """Returns the training step as HLO text; `weights` is `both` or `fsdp`."""
    jax: Any = importlib.import_module("jax")
    transformer: Any = importlib.import_module("transformer")
    lowering: Any = importlib.import_module("lowering").Lowering(
        dict(zip(("data", "model"), MESHES[devices], strict=True)) if weights == "both" else {"data": devices})
    config = transformer.Config(**SIZES, layers=layers)
    P, model = jax.sharding.PartitionSpec, "model" if weights == "both" else None
    columns, rows, heads = P("data", model), P(model, "data"), P("data", model, None)
    layer = {
        "attention_norm": P("data"), "query": heads, "key": heads, "value": heads, "output": P(model, None, "data"),
        "mlp_norm": P("data"), "gate": columns, "up": columns, "down": rows,
    }  # fmt: skip
    specs = {"embedding": rows, "layers": [layer] * layers, "final_norm": P("data"), "unembedding": columns}
    state = {"step": P(), "parameters": specs, "first": specs, "second": specs}

    def constrain(x: Any, spec: Any) -> Any:
        return lowering.constrain(x, spec) if spec == transformer.RESIDUAL else x

    tokens, by_batch = jax.ShapeDtypeStruct((config.batch, config.sequence), jax.numpy.int32), P("data", None)
    arguments = transformer.state_shapes(config), tokens, tokens
    return lowering.text(transformer.make_step(config, constrain), arguments, (state, by_batch, by_batch), (state, P()))


@dataclass(frozen=True, slots=True)
class Measured:
    """Processor seconds of each step, and what it made."""

    parse: float
    propagate: float
    refine: float
    partition: float
    print: float
    schedule: float
    forecast: float
    instructions: int
    sent: int
    time: float

    @property
    def total(self) -> float:
        return self.parse + self.propagate + self.partition + self.print


def measure(text: str) -> Measured:
    """Compiles from text to text with empty caches."""
    plan_reshard.cache_clear()
    parse_sharding.cache_clear()
    refining: list[float] = []
    refine: Callable[..., bool] = propagation.refine

    def timed(*given: Any) -> bool:
        taken, found = seconds(lambda: refine(*given))
        refining.append(taken)
        return found

    propagation.refine = timed
    try:
        parse, module = seconds(lambda: hloom.parse(text))
        propagate, sharded = seconds(lambda: hloom.propagate(module))
        partition, local = seconds(lambda: hloom.partition(sharded))
        printing, _ = seconds(local.to_text)
    finally:
        propagation.refine = refine
    found = hloom.collectives(local)
    time = sum(DEFAULT.collective(cast(Kind, c.kind), None).time(c.wire_bytes) * c.count for c in found)
    count = sum(len(c) for c in module)
    with paused_collector():
        scheduling, _ = seconds(lambda: schedule(local.module, PassContext(machine=DEFAULT)))
        forecasting, _ = seconds(lambda: forecast_of(local.module, DEFAULT, module))
    return Measured(parse, propagate, sum(refining), partition, printing, scheduling, forecasting, count,
                    sum(c.sent_bytes for c in found), time)  # fmt: skip


def seconds(action: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def xla_seconds(path: Path) -> tuple[float, float]:
    """Returns the seconds in which XLA compiles a file, and those of its propagation and partitioning in them."""
    environment = {
        **os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "hlo_pass_pipeline=1",
    }  # fmt: skip
    command = [sys.executable, str(COMPILE), "--compile"]
    with path.open() as text:
        done = subprocess.run(command, check=True, stdin=text, capture_output=True, text=True, env=environment)
    return float(done.stdout), sum(int(us) for us in _PASS.findall(done.stderr)) / 1e6


def row(weights: str, layers: int, devices: int, runs: int, with_xla: bool) -> str:
    text = program(weights, layers, devices)
    ours: list[Measured] = []
    theirs: list[tuple[float, float]] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.hlo"
        path.write_text(text)
        for _ in range(runs):
            ours.append(measure(text))
            theirs += [xla_seconds(path)] if with_xla and devices == 8 else []
    best = min(ours, key=lambda m: m.total)
    line = (f"{weights:7} {layers:7} {devices:8,} {best.instructions:7,} {best.parse:6.2f} {best.propagate:10.2f} "
            f"({best.refine:6.2f}) {best.partition:10.2f} {best.print:6.2f} {best.total:6.2f} "
            f"{best.schedule:9.2f} {best.forecast:9.2f} |")  # fmt: skip
    if theirs:
        whole, own = (min(times) for times in zip(*theirs, strict=True))
        line += (f" {whole:6.2f} {best.total / whole:6.2f} {own:10.2f} "
                 f"{(best.propagate + best.partition) / own:6.2f} |")  # fmt: skip
    else:
        line += " " * 33 + "|"
    return line + f" {best.sent / 1e9:7,.0f} {best.time / 1e9:7,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--devices", type=int, nargs="*", default=list(MESHES), choices=MESHES)
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS), choices=WEIGHTS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-xla", dest="xla", action="store_false", help="leave XLA out")
    arguments = parser.parse_args()
    measure(program("both", 1, 8))  # the first run includes imports
    print(HEADER)
    for weights in arguments.weights:
        for layers in arguments.layers:
            print(row(weights, layers, min(arguments.devices), arguments.runs, arguments.xla), flush=True)
        for devices in sorted(arguments.devices)[1:]:
            print(row(weights, arguments.layers[0], devices, arguments.runs, False), flush=True)


if __name__ == "__main__":
    main()
