"""Prints how long the first call of a training step takes in a process, and in the next one, which begins with what the
first has kept on disk: with `hloom.jax.jit` and with `jax.jit`.

    python bench/jax_first_call.py [LAYERS]

The step is that of examples/transformer.py with Adam and 24 layers written out, on a mesh of 2 x 4 virtual devices. The
caches, Hloom's and that of JAX's compiler, are empty at first. Of the seconds of the call, `tracing` are those in which
JAX traces the function and Hloom partitions it, the others those in which XLA compiles it and it runs once.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import hloom.jax
from support.virtual_devices import eight_devices


def measure(door: str, layers: int) -> str:
    """Calls the step once in this process."""
    eight_devices()
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    transformer: Any = importlib.import_module("transformer")
    sharding = jax.sharding
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(sharding.AxisType.Auto,) * 2)

    def constrain(x: Any, spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, sharding.NamedSharding(mesh, spec))

    def put(value: Any, spec: Any) -> Any:
        zeros = jax.numpy.zeros(value.shape, value.dtype)
        return jax.device_put(zeros, sharding.NamedSharding(mesh, spec))

    config = transformer.Config(layers=layers)
    state = jax.tree.map(put, transformer.state_shapes(config), transformer.state_specs(config))
    tokens = put(jax.ShapeDtypeStruct((config.batch, config.sequence), jax.numpy.int32), sharding.PartitionSpec("data"))
    jitted = (hloom.jax.jit if door == "hloom" else jax.jit)(transformer.make_step(config, constrain))
    compiling: list[float] = []

    def note(name: str, seconds: float, **_: Any) -> None:
        if name.endswith("backend_compile_duration"):
            compiling.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    start = time.perf_counter()
    jax.block_until_ready(jitted(state, tokens, tokens))
    total = time.perf_counter() - start
    return "".join(f"{seconds:9.2f}" for seconds in (total, total - sum(compiling), sum(compiling)))


def main() -> None:
    layers = int(sys.argv[1]) if sys.argv[1:] else 24
    print(f"{'step of ' + str(layers) + ' layers':21} {'call':>8} {'tracing':>8} {'others':>8}")
    for door in ("hloom", "jax"):
        with tempfile.TemporaryDirectory() as folder:
            places = {"HLOOM_CACHE": f"{folder}/hloom", "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"}
            for number in ("first", "second"):
                command = (sys.executable, __file__, "--measure", door, str(layers))
                done = subprocess.run(command, env=os.environ | places, stdout=subprocess.PIPE, text=True, check=True)
                print(f"{door + ', ' + number + ' process':21}{done.stdout.rstrip()}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(measure(sys.argv[2], int(sys.argv[3])))
    else:
        main()
