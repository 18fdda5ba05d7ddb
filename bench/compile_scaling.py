"""Measures how long Hloom compiles, against XLA and against the number of devices.

    python bench/compile_scaling.py [--runs 5] [--layers 2] [--xla]

Makes one transformer training step (through `examples/make_transformer.py`, so JAX must be installed) for meshes of 8
to 16,384 devices, with dimensions that all of them divide, and prints per mesh: median seconds of propagation and of
partitioning with empty caches, and of scheduling for H100s; size of the LOCAL text, instructions, and ratios to the
smallest mesh. With `--xla` the program for 8 devices is also timed from text to text: Hloom parses, propagates,
partitions and prints it, and XLA compiles the same text with its Shardy partitioner for eight virtual CPU devices in a
process of its own. XLA's time includes code generation for the CPU, which Hloom does not do. Both of these are
processor times, in all threads.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.presets import PRESETS
from hloom.ir.graph.module import clone_module
from hloom.passes.base import PassContext
from hloom.passes.resharding.plan import plan_reshard
from hloom.passes.scheduling import schedule

MAKER = Path(__file__).parents[1] / "examples" / "make_transformer.py"
MESHES = [(2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 128), (128, 128)]
SIZES = {"batch": 128, "sequence": 16, "width": 256, "heads": 128, "hidden": 256, "vocabulary": 256}


def program(data: int, model: int, layers: int) -> str:
    """Returns the training step as HLO text, annotated for a data × model mesh."""
    sizes = [part for name, size in SIZES.items() for part in (f"--{name}", str(size))]
    command = [sys.executable, str(MAKER), "--mesh", f"data={data},model={model}", "--layers", str(layers), *sizes]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measure(text: str, runs: int) -> tuple[float, float, float, int, int]:
    """Returns median seconds to propagate, to partition and to schedule, characters of the LOCAL text, and
    instructions.
    """
    module = hloom.parse(text)
    propagating: list[float] = []
    partitioning: list[float] = []
    scheduling: list[float] = []
    local: hloom.Module = module
    for _ in range(runs):
        plan_reshard.cache_clear()
        start = time.perf_counter()
        sharded = hloom.propagate(module)
        middle = time.perf_counter()
        local = hloom.partition(sharded).module
        propagating.append(middle - start)
        partitioning.append(time.perf_counter() - middle)
        copy = clone_module(local)
        start = time.perf_counter()
        schedule(copy, PassContext(machine=PRESETS["h100"]))
        scheduling.append(time.perf_counter() - start)
    instructions = sum(len(c) for c in local)
    medians = [statistics.median(seconds) for seconds in (propagating, partitioning, scheduling)]
    return medians[0], medians[1], medians[2], len(local.to_text()), instructions


def whole(text: str) -> float:
    """Returns processor seconds from text to text with empty caches."""
    plan_reshard.cache_clear()
    start = time.process_time()
    hloom.partition(hloom.parse(text)).to_text()
    return time.process_time() - start


def xla_seconds(text: str) -> float:
    """Returns the processor seconds in which XLA compiles the text, in another process."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, "--compile"]
    done = subprocess.run(command, check=True, input=text, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def compile_with_xla() -> None:
    """Compiles standard input and prints the processor seconds; runs in the other process."""
    jax: Any = importlib.import_module("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    module = hlo.hlo_module_from_text(sys.stdin.read())
    stablehlo = xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = xla.CompileOptions()
    options.num_replicas, options.num_partitions = 1, 8
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    devices = tuple(jax.devices("cpu")[:8])
    start = time.process_time()
    devices[0].client.compile_and_load(stablehlo, xla.DeviceList(devices), options)
    print(time.process_time() - start)


def main() -> None:
    if sys.argv[1:] == ["--compile"]:
        compile_with_xla()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--xla", action="store_true", help="also compare with XLA's compiler, on the smallest mesh")
    arguments = parser.parse_args()
    first_text = program(*MESHES[0], arguments.layers)
    measure(first_text, 1)  # the first run includes imports
    if arguments.xla:
        ours, theirs = (statistics.median(f(first_text) for _ in range(arguments.runs)) for f in (whole, xla_seconds))
        print(f"{arguments.layers} layers, {len(first_text):,} characters, 8 devices: Hloom {ours:.2f} s from text to "
              f"text, XLA {theirs:.2f} s to compile, ratio {ours / theirs:.2f}\n")  # fmt: skip
    print("devices  propagate s  partition s  schedule s  ratio   LOCAL text  ratio  instructions")
    first: tuple[float, int] | None = None
    for data, model in MESHES:
        text = program(data, model, arguments.layers)
        propagating, partitioning, scheduling, size, count = measure(text, arguments.runs)
        total = propagating + partitioning
        first = first or (total, size)
        print(f"{data * model:7}  {propagating:11.3f}  {partitioning:11.3f}  {scheduling:10.3f}  "
              f"{total / first[0]:5.2f}  {size:11,}  {size / first[1]:5.2f}  {count:12,}", flush=True)


if __name__ == "__main__":
    main()
