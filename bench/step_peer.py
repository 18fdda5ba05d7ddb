"""Runs a training step for `step_ranks.py`, as one of the systems that it compares, when it is told to.

    python bench/step_peer.py FOLDER SYSTEM CONFIGURATION KIND RANKS [RANK PORT]

SYSTEM is one of `SYSTEMS`. FOLDER has the partitioned program, and the notes by which both sides talk: `ready`, then
`go0` and `done0`, `go1` and `done1`, and `stop`. Rank 0 answers; a step ends when all ranks have its loss. Between the
rounds all ranks sleep, so that systems can take turns.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hloom
import numpy as np
from hloom.cost.memory import live_memory
from hloom.driver.backend import Backend
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.native.table import arenas
from hloom.runtime.ranks.launch import finish_rank, inside_launcher, launch, world
from llama_step import CONFIGURATIONS, Sharded, batch, flat, matmuls, mesh_axes, parameters

Step = Callable[[], float]  # runs a step, and returns the loss
PAUSE = 0.002  # seconds between looks at the folder
PROCESSOR = "processor"  # the name of the processor time of a step, per rank


MACHINE = "cpu-cluster"
PASSES = {
    "hloom-single": "equal-computations",
    "hloom-layer": "equal-computations,bucket{rule=layer}",
    "hloom-schedule": "equal-computations,schedule",
    "hloom-flat": "equal-computations,schedule,flat-parameters",
}
"""How the collectives of Hloom are combined and ordered, other than by what native code does by itself."""


@dataclass(frozen=True)
class Task:
    """What this process runs, and where it talks."""

    folder: Path
    system: str
    configuration: str
    kind: str
    ranks: int
    rank: int = 0
    port: int = 0

    @staticmethod
    def of(words: list[str]) -> Task:
        folder, system, configuration, kind, *numbers = words
        return Task(Path(folder), system, configuration, kind, *map(int, numbers))


@dataclass(frozen=True)
class Prepared:
    """The steps of a system by name, and the bytes of this process that `memory` finds when a step has run."""

    steps: dict[str, Step]
    memory: Callable[[], dict[str, int]] = field(default=dict)


def hloom_steps(task: Task) -> Prepared:
    """Returns the steps of Hloom: the program's, and its products alone."""
    c, backend = CONFIGURATIONS[task.configuration], Backend("native")
    inputs = flat(parameters(c), *batch(c))
    local = hloom.load(task.folder / "program.hlo")
    if task.system in PASSES:
        run_pipeline(parse_pipeline(PASSES[task.system]), local, PassContext(machine=hloom.parse_machine(MACHINE)))
        local.is_scheduled = True  # the order is decided, and what is combined
    module = backend.prepared(local)
    products = matmuls(local)
    steps: dict[str, Step] = {"matmuls": lambda: products() or math.nan}
    if task.ranks == 1:
        alone = UnpartitionedProgram(module, backend.kernels())
        return Prepared({"step": lambda: float(alone.run(inputs)[-1]), **steps})
    program = MpiProgram(module, world(), kernels=backend.kernels())
    mine = program.local_inputs(inputs)

    def run() -> float:
        return float(program.run(mine)[0][-1])

    def memory() -> dict[str, int]:
        held = sum(array.nbytes for device in mine for array in device)
        held += len(program.devices) * sum(arena.size for arena in arenas(program.executable.arranged))
        return {"forecast": live_memory(module).peak, "arrays": held + allocated(run),
                "windows": program.fabric.shared_bytes}  # fmt: skip

    return Prepared({"step": run, **steps}, memory)


def allocated(step: Step) -> int:
    """Returns the most bytes that this process allocates in a step and holds at once; numpy reports its arrays."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def jax_steps(task: Task) -> Prepared:
    """Returns the step of JAX, on virtual devices of this process or on one device of each process."""
    jax: Any = importlib.import_module("jax")
    if task.port:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{task.port}", task.ranks, task.rank)
    c = CONFIGURATIONS[task.configuration]
    axes = mesh_axes(task.kind, task.ranks)
    sharded = Sharded(c, task.kind, jax.sharding.Mesh(np.array(jax.devices()).reshape(*axes.values()), tuple(axes)))
    held = jax.tree.map(
        lambda x, s: jax.make_array_from_callback(x.shape, s, lambda index: x[index]),
        (parameters(c), *batch(c)), sharded.arguments(),
    )  # fmt: skip
    run = sharded.jitted().lower(*held).compile()
    return Prepared({"step": lambda: float(jax.block_until_ready(run(*held))[1].addressable_data(0))})


def torch_steps(task: Task) -> Prepared:
    """Returns the step of torch."""
    made: Any = importlib.import_module("torch_step")
    c = CONFIGURATIONS[task.configuration]
    step = made.training_step(c, task.kind, task.ranks, task.rank, task.port, "compiled" in task.system)
    return Prepared({"step": step})


SYSTEMS: dict[str, Callable[[Task], Prepared]] = {
    "hloom": hloom_steps,
    **dict.fromkeys(PASSES, hloom_steps),
    "jax": jax_steps,
    "jax-gloo": jax_steps,
    "torch": torch_steps,
    "torch-compiled": torch_steps,
}


def answer(task: Task, name: str, content: object) -> None:
    """Leaves a note for the other side, complete at once."""
    if task.rank == 0:
        part = task.folder / f"part-{name}"
        part.write_text(json.dumps(content))
        part.rename(task.folder / name)


def serve(task: Task) -> int:
    """Prepares the steps, then runs them as often as it is told."""
    pin(task)
    parent = os.getppid()
    keep_freed_memory()  # as the command line does
    start = time.perf_counter()
    made = SYSTEMS[task.system](task)
    steps = made.steps
    loss, seconds = steps["step"](), time.perf_counter() - start
    answer(task, "ready", {"compile": seconds, "loss": loss, **made.memory()})
    for number in range(1 << 30):
        while not (go := task.folder / f"go{number}").exists():
            if (task.folder / "stop").exists() or os.getppid() != parent:
                return 0
            time.sleep(PAUSE)
        times: dict[str, list[float]] = {name: [] for name in (*steps, PROCESSOR)}
        cores = task.ranks if task.system == "jax" else 1  # of this process
        for _ in range(int(go.read_text())):
            for name, step in steps.items():
                start, used = time.perf_counter(), time.process_time()
                step()
                times[name].append(time.perf_counter() - start)
                if name == "step":
                    times[PROCESSOR].append((time.process_time() - used) / cores)
        answer(task, f"done{number}", times)
    return 0


def pin(task: Task) -> None:
    """Gives a rank a core of its own as far as there are any, and virtual devices as many as there are devices."""
    cores = sorted(os.sched_getaffinity(0))
    own = {cores[task.rank % len(cores)]}
    os.sched_setaffinity(0, set(cores[: task.ranks]) if task.system == "jax" else own)


if __name__ == "__main__":
    chosen = Task.of(sys.argv[1:])
    if SYSTEMS[chosen.system] is not hloom_steps or chosen.ranks == 1:
        sys.exit(serve(chosen))
    if not inside_launcher():
        sys.exit(launch(sys.argv[1:], chosen.ranks, [__file__]))
    ranked = Task.of([*sys.argv[1:], str(world().rank)])
    sys.exit(finish_rank(lambda: serve(ranked)))
