"""Measures how long sharding propagation takes, and whether it depends on the number of devices.

    PYTHONPATH=.import:tests python bench/propagate.py [--layers 2 8 32 128] [--devices 8 512] [--runs 3] [--forward]

Needs JAX. The programs are training steps of transformers with unrolled layers, weights divided over both axes of the
mesh, activations by batch. Each is lowered once; for other meshes only the sizes of the axes in its text change. Hloom
and Shardy get the same instructions: `hloom.propagate` on the parsed module (it copies the module first), and jaxlib's
MLIR PassManager with `sdy-propagation-pipeline` on the same module as StableHLO. Reading and converting are not
counted.

XLA's own (GSPMD) propagation runs inside its compiler only. jaxlib cannot call the pass, but the compiler's log says
how long each pass took: a second process with as many virtual devices as the mesh has compiles the program for the old
partitioner, and is stopped as soon as that line appears. XLA gets the program with device lists, as JAX writes them,
because that partitioner reads no others. Meshes of more than `--xla-devices` are left out: XLA's CPU client starts
threads for each device, and with 4,096 of them does not start within five minutes. Each time is the best of the runs.
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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloom
from sharded_programs.registry import Kit, lower, parse_axes
from sharded_programs.transformers import BOTH, DATA, Transformer
from support import shardy_oracle

MESHES = [(2, 4), (8, 8), (32, 16), (64, 64), (128, 128)]
SMALLEST = "data=2,model=4"
HEADER = "layers  instructions  devices   Hloom s  Shardy s     XLA s  Hloom/Shardy  Hloom/XLA  us/instr.  to first"


def program(layers: int, train: bool) -> str:
    """Returns HLO text for the smallest mesh; all sizes are divisible by the largest."""
    model = Transformer(
        layers=layers, batch=128, sequence=16, width=256, heads=128, kv_heads=128, head=8, hidden=512, vocabulary=256,
        specs={**DATA, **BOTH}, activations=("data", None, None))  # fmt: skip
    kit = Kit(parse_axes(SMALLEST))
    return lower(kit, *model.made(kit, train=train))


def on_mesh(text: str, data: int, model: int) -> str:
    """Returns the program on another mesh, with the sizes of its axes changed in Shardy's attributes and in device
    lists.
    """
    text = text.replace('["data"=2, "model"=4]', f'["data"={data}, "model"={model}]')

    def device_list(match: re.Match[str]) -> str:
        tiles = ",".join(str({2: data, 4: model}.get(int(n), int(n))) for n in match[1].split(","))
        return f"devices=[{tiles}]" + match[2].replace("[8]", f"[{data * model}]").replace("[2,4]", f"[{data},{model}]")

    return re.sub(r"devices=\[([\d,]+)\](<=\S+)", device_list, text)


def best(runs: int, once: Callable[[], float]) -> float:
    return min(once() for _ in range(runs))


def hloom_seconds(module: hloom.Module) -> float:
    start = time.perf_counter()
    hloom.propagate(module)
    return time.perf_counter() - start


def shardy_seconds(module: hloom.Module) -> float:
    with shardy_oracle.context():
        mlir = shardy_oracle.to_stablehlo(module)
        start = time.perf_counter()
        shardy_oracle.run(shardy_oracle.PIPELINE, mlir)
        return time.perf_counter() - start


def xla_seconds(text: str, devices: int) -> float | None:
    """Returns the seconds of the `sharding-propagation` pass while XLA compiles the text; None if its log does not say.
    """
    environment = {
        **os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "hlo_pass_pipeline=1",
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.hlo"
        path.write_text(text)
        command = [sys.executable, __file__, "--compile", str(path), str(devices)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                found = re.search(r"HLO pass: sharding-propagation time: .*\((\d+) us\) \(cum", line)
                if found:
                    process.kill()
                    return int(found[1]) / 1e6
    return None


def compile_for_log(path: str, devices: int) -> None:
    """Compiles a text with XLA's old partitioner; runs in the second process."""
    jax: Any = importlib.import_module("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    module = hlo.hlo_module_from_text(Path(path).read_text())
    stablehlo = xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = xla.CompileOptions()
    options.num_replicas, options.num_partitions = 1, devices
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = False
    found = tuple(jax.devices("cpu")[:devices])
    found[0].client.compile_and_load(stablehlo, xla.DeviceList(found), options)


def main() -> None:
    if sys.argv[1:2] == ["--compile"]:
        compile_for_log(sys.argv[2], int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[2, 8, 32, 128])
    parser.add_argument("--devices", type=int, nargs="*", default=[d * m for d, m in MESHES])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--xla-devices", type=int, default=512)
    parser.add_argument("--forward", action="store_true", help="the forward pass instead of a training step")
    arguments = parser.parse_args()
    print(HEADER)
    hloom_seconds(shardy_oracle.prepare(on_mesh(program(1, True), 2, 4))[0])  # the first run includes imports
    for layers in arguments.layers:
        text = program(layers, not arguments.forward)
        first = 0.0
        for data, model in (mesh for mesh in MESHES if mesh[0] * mesh[1] in arguments.devices):
            module, _ = shardy_oracle.prepare(on_mesh(text, data, model))
            ours = best(arguments.runs, lambda module=module: hloom_seconds(module))
            theirs = best(arguments.runs, lambda module=module: shardy_seconds(module))
            devices = data * model
            xla = xla_seconds(module.to_text(), devices) if devices <= arguments.xla_devices else None
            first = first or ours
            print(row(layers, sum(len(c) for c in module), devices, ours, theirs, xla, first), flush=True)


def row(layers: int, count: int, devices: int, ours: float, theirs: float, xla: float | None, first: float) -> str:
    seconds, ratio = (f"{xla:.3f}", f"{ours / xla:.2f}") if xla else ("-", "-")
    return (f"{layers:6} {count:13,} {devices:8,} {ours:9.3f} {theirs:9.3f} {seconds:>9} {ours / theirs:13.2f}"
            f" {ratio:>10} {1e6 * ours / count:10.1f} {ours / first:9.2f}")


if __name__ == "__main__":
    main()
