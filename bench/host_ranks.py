"""Divides the programs of `host_forecasts.py` among ranks of this machine, and measures them there.

Programs with a mesh keep their shardings, on a mesh of as many devices as ranks: two on its last axis if there are
four, the others on the first. Functions of JAX have none: each argument is divided along the first dimension that the
ranks divide. Programs are scheduled for a cluster of CPUs, so that their order is not one that the forecast chose.

The ranks calibrate the machine first, as `hloom machine calibrate --ranks` does, then run the programs in turns, some
steps of each. Programs count by processor time, as the calibration does, since other processes take turns on the cores:
the median of turns of the least of each rank, and of these the most, or the sum over the cores where there are fewer
cores than ranks.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import hloom
from hloom.cost.calibrated import machine_of
from hloom.cost.machine import Machine
from hloom.cost.machine_text import machine_text
from hloom.driver.backend import NATIVE, Backend
from hloom.driver.calibration import measured
from hloom.ir.graph.module import Module
from hloom.ir.tools.printer import module_text
from hloom.passes.annotating.remesh import remesh
from hloom.passes.annotating.strategy import named_meshes
from hloom.passes.base import PassContext
from hloom.passes.stages import partition_and_schedule
from hloom.runtime.allocator import keep_freed_memory
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.cores import seconds_on_cores
from hloom.runtime.ranks.launch import launch, world

AXIS = "data"
STEPS = 20  # of a program in each turn


def divided(module: Module, ranks: int) -> Module | None:
    """Returns the program of a device of as many as there are ranks, scheduled; None if it cannot be divided so."""
    meshes = named_meshes(module)
    context = PassContext(machine=hloom.parse_machine("cpu-cluster"), num_devices=ranks)
    try:
        if meshes:
            names = [name for name, _ in meshes[0].axes]
            sizes = dict.fromkeys(names, 1)
            if len(names) > 1 and ranks > 2:
                sizes[names[-1]] = 2
            sizes[names[0]] = ranks // sizes[names[-1]]
            remesh(module, sizes)
        else:
            settings = {p.name: spec for p in module.entry.parameters if (spec := _rows(p.shape.dims, ranks))}
            hloom.apply_strategy(module, settings, {AXIS: ranks})
        return partition_and_schedule(module, context)
    except hloom.CompileError as error:
        print(f"left out: {module.name}, {error.diagnostics[0].message}", flush=True)
        return None


def _rows(dims: tuple[int, ...], ranks: int) -> str:
    """Returns the setting that divides an array along its first dimension that the ranks divide; none without one."""
    found = next((n for n, size in enumerate(dims) if size % ranks == 0), None)
    return "" if found is None else ", ".join(AXIS if n == found else "-" for n in range(len(dims)))


def on_ranks(script: Path, modules: Mapping[str, Module], ranks: int, rounds: int) -> tuple[Machine, dict[str, float]]:
    """Calibrates and runs programs on ranks that run this script. Returns the machine, and the seconds of a step."""
    with TemporaryDirectory() as path:
        folder = Path(path)
        for number, module in enumerate(modules.values()):
            (folder / f"{number}.hlo").write_text(module_text(module))
        code = launch(["--folder", path, "--rounds", str(rounds)], ranks, [str(script)])
        assert not code, f"the ranks ended with {code}"
        seconds = json.loads((folder / "seconds.json").read_text())
        machine = hloom.parse_machine(str(folder / "this.toml"))
    return machine, dict(zip(modules, seconds, strict=True))


def run_ranks(folder: Path, rounds: int) -> int:
    """Calibrates this machine and runs the programs of a folder, as one of the ranks. Returns the exit code."""
    keep_freed_memory()
    comm, backend = world(), Backend(NATIVE)
    machine = machine_of(measured(comm, backend), "this")
    running = [_Running(path) for path in sorted(folder.glob("*.hlo"), key=lambda path: int(path.stem))]
    times = [[one.least() for one in running] for _ in range(rounds)]
    typical = [comm.allgather(statistics.median(turns)) for turns in zip(*times, strict=True)]
    for one in running:
        one.program.close()
    if comm.rank == 0:
        (folder / "this.toml").write_text(machine_text(machine))
        (folder / "seconds.json").write_text(json.dumps([seconds_on_cores(spent) for spent in typical]))
    return 0


class _Running:
    """A program on this rank, with the inputs of `hloom run`."""

    def __init__(self, path: Path) -> None:
        backend = Backend(NATIVE)
        prepared = backend.prepared(hloom.load(str(path)))
        self.program = MpiProgram(prepared, world(), kernels=backend.kernels())
        self.inputs = self.program.local_inputs(inputs_for_module(prepared))
        self.program.run(self.inputs)

    def least(self) -> float:
        """Returns the least busy seconds of this rank, of some steps one after the other: the first ones find little in
        caches.
        """
        world().Barrier()
        least = math.inf
        for _ in range(STEPS):
            begin = self.program.watch.busy
            self.program.run(self.inputs)
            least = min(least, self.program.watch.busy - begin)
        return least
