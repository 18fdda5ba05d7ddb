"""Compares the order of planned candidates by their forecast with the order by steps on ranks of this machine.

    PYTHONPATH=.import:tests python bench/plan_measured.py [NAME ..] [--ranks 2 4] [--rounds 20] [--machine F.toml]

Needs JAX, HiGHS and MPI. For each number of ranks the machine is calibrated (`hloom machine calibrate --ranks N`), or
given as a file. Each program is planned without annotations on a mesh of as many devices. Five candidates with
different programs run on the ranks, scheduled as they were judged: the plan, and others up to about three times as
slow. They take turns, a step of each in a round, and the least of the rounds counts. All ranks begin a step together;
its time is that until the last one ends. Where other processes share the cores, `processor` tells more: what the ranks
compute and copy, on the cores that there are. Of waiting it has the first moments, in which ranks spin.

`tau` is Kendall's rank correlation of forecast and measured time and `rho` Spearman's, `ratio` the plan's time over the
best of the five measured. `as run` is the forecast by the times of native code, which the calibrated machine has, too;
the planner's own knows products, memory and collectives alone. The goal is a correlation of 0.8 and a ratio of 1.05.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloom
from hloom.cost.machine import Machine
from hloom.driver.backend import NATIVE, Backend
from hloom.driver.forecast import forecast_in_order
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.printer import module_text
from hloom.passes.base import PassContext
from hloom.passes.planning.plan import Plan
from hloom.passes.stages import divided_states, to_local, to_scheduled
from hloom.report.measured import kendall
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.cores import seconds_on_cores
from hloom.runtime.ranks.launch import finish_rank, inside_launcher, launch, world
from support.layered_programs import Model

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
CANDIDATES, MOST = 5, 20  # that run, and that are judged beside those that the search has judged
SPREAD = 3.0  # of their forecasts, about
MESHES = {2: "data=2", 4: "data=2,model=2"}


def layers(batch: int, width: int, hidden: int, loop: bool = False) -> Callable[[], Module]:
    """Returns a maker of a training step of three layers."""
    return lambda: hloom.parse(Model(layers=3, batch=batch, width=width, hidden=hidden, loop=loop).text())


def middle(**sizes: int) -> Callable[[], Module]:
    """Returns a maker of a training step of a transformer between the small ones and the papers'."""

    def made() -> Module:
        from models.dense import MEGATRON, Transformer, dense

        base = Transformer(width=128, hidden=512, heads=8, head=16, vocabulary=512, sequence=64)
        return dense(replace(base, **sizes), {"data": 2, "model": 2}, MEGATRON).module

    return made


def small(name: str) -> Callable[[], Module]:
    """Returns a maker of one of the models at its small size."""

    def made() -> Module:
        from models import MODELS

        return MODELS[name].small().module

    return made


PROGRAMS: Mapping[str, Callable[[], Module]] = {
    "large weights": layers(64, 512, 2048),
    "large batch": layers(8192, 64, 128),
    "square": layers(512, 512, 512),
    "narrow": layers(2048, 32, 2048),
    "loop": layers(256, 256, 1024, loop=True),
    "dense": middle(),
    "dense, long": middle(sequence=128, batch=4),
    "conformer": small("conformer"),
}


def scheduled(module: Module, machine: Machine, devices: int, split: int) -> Module:
    """Returns the program of a device, scheduled as a plan judges it."""
    local, context = clone_module(module), PassContext(machine=machine, num_devices=devices)
    divided = divided_states(local, context)
    to_local(local, context)
    to_scheduled(local, context, split=split, divided=divided)
    return local


def candidates(found: Plan, machine: Machine) -> list[tuple[str, float, Module]]:
    """Returns the name, the forecast and the program of a plan, and of other candidates: what the search has judged,
    the usual shardings, the plan with the divisions of one to 32 classes changed at random, and proposals. Their
    forecasts are as far apart as there are candidates for: two that differ by less than the forecast's error have no
    order to be told.
    """
    devices, rnd = found.mesh.size, random.Random(0)
    every = [c for c in found.candidates if c.judged.fits and "quick" not in c.name]
    choices = [(name, choice) for name, choice, _ in found.on.presets()]
    if given := next((c.choice for c in every if c.choice), None):
        for count in [n for n in (1, 2, 4, 8, 16, 32) if n <= len(given)] * 2:
            changes = {n: rnd.randrange(len(found.on.model.classes[n].rows)) for n in rnd.sample(sorted(given), count)}
            choices.append((f"{count} changed", {**given, **changes}))
    choices += [(name, choice) for name, choice, _ in found.on.proposals]  # all near the best: the others come first
    known, most = [c.choice for c in every], len(every) + MOST
    for name, choice in choices:
        if choice not in known and len(every) < most:
            known.append(choice)
            every.append(found.on.candidate(name, choice, found.context, 0))
    different: dict[str, tuple[str, float, Module]] = {}
    for one in sorted((c for c in every if c.judged.fits), key=lambda c: c.rank):
        local = scheduled(one.module, machine, devices, one.parts)
        different.setdefault(module_text(local), (one.name, one.judged.seconds, local))
    chosen, *others = different.values()
    spread = min(max((seconds for _, seconds, _ in others), default=chosen[1]) / chosen[1], SPREAD)
    picked = [chosen]
    for number in range(1, min(CANDIDATES, len(different))):
        wanted = chosen[1] * spread ** (number / (CANDIDATES - 1))
        nearest = min(others, key=lambda one: abs(math.log(one[1] / wanted)))
        others.remove(nearest)
        picked.append(nearest)
    return sorted(picked, key=lambda one: one[1])


def prepare(name: str, machine: Machine, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Plans a program, writes the programs of the candidates, and returns their names and forecasts."""
    module = PROGRAMS[name]()
    hloom.strip_annotations(module)
    found = hloom.plan(module, machine, mesh=MESHES[ranks], seconds=20.0)
    rows: list[dict[str, Any]] = []
    for number, (label, seconds, local) in enumerate(candidates(found, machine)):
        path = folder / f"{name} {number}.hlo"
        path.write_text(module_text(local))
        as_run = forecast_in_order(local, machine, module).seconds
        rows.append({"path": str(path), "label": label, "forecast": seconds, "as run": as_run})
    return rows


class Running:
    """A program on this rank."""

    def __init__(self, path: str) -> None:
        backend = Backend(NATIVE)
        prepared = backend.prepared(hloom.load(path))
        self.program = MpiProgram(prepared, world(), kernels=backend.kernels())
        shapes = [p.shape for p in prepared.entry.parameters]
        self.inputs = [make_inputs(shapes, seed=device) for device in self.program.devices]

    def step(self) -> tuple[float, float]:
        """Returns the seconds of a step until the last rank ends, and those of processor time on the cores at hand."""
        comm = world()
        comm.Barrier()
        begin, spent = time.monotonic(), time.process_time()
        self.program.run(self.inputs)
        mine = time.monotonic() - begin, time.process_time() - spent
        walls, processor = zip(*comm.allgather(mine), strict=True)
        return max(walls), seconds_on_cores(processor)


def measure(folder: Path, rounds: int) -> int:
    """Runs the programs of a folder in turns, and writes the seconds of each on rank 0."""
    paths = json.loads((folder / "paths.json").read_text())
    running = [Running(path) for path in paths]
    for one in running:
        one.step()
    times = [[one.step() for one in running] for _ in range(rounds)]
    for one in running:
        one.program.close()
    if world().rank == 0:
        least = [[min(column) for column in zip(*steps, strict=True)] for steps in zip(*times, strict=True)]
        (folder / "times.json").write_text(json.dumps(least))
    return 0


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Returns Spearman's rank correlation, of lists without equal numbers."""
    places = [[sorted(x).index(one) for one in x] for x in (left, right)]
    count = len(left)
    return 1.0 - 6.0 * sum((a - b) ** 2 for a, b in zip(*places, strict=True)) / max(count**3 - count, 1)


def show(name: str, rows: Sequence[Mapping[str, Any]], words: bool) -> tuple[float, float]:
    """Prints the row of a program, and returns the correlation with the processor time and the ratio."""
    forecast, as_run, wall, spent = ([row[key] for row in rows] for key in ("forecast", "as run", "wall", "processor"))
    rho, ratio = spearman(forecast, spent), spent[0] / min(spent)
    columns = [
        *(f"{1e3 * times[0]:9.2f}" for times in (forecast, as_run, spent, wall)),
        *(f"{max(times) / times[0]:7.2f}" for times in (forecast, spent)),
        *(f"{one:6.2f}" for one in (kendall(forecast, spent) or 0.0, rho, spearman(as_run, spent),
                                    spearman(forecast, wall), ratio, wall[0] / min(wall))),
    ]  # fmt: skip
    print(f"{name:14} {len(rows)} {' '.join(columns)}", flush=True)
    for row in rows if words else ():
        times = " ".join(f"{key} {1e3 * row[key]:.2f}" for key in ("forecast", "as run", "processor", "wall"))
        print(f"    {row['label'][:44]:44} {times}")
    return rho, ratio


def table(ranks: int, names: Sequence[str], machine: Machine, args: argparse.Namespace) -> None:
    """Plans the programs for some ranks, measures their candidates, and prints a row for each."""
    print(f"{ranks:2} ranks  candidates and ms of the plan: forecast, as run, processor, wall; slowest by forecast and "
          "processor; tau, rho, rho as run, rho by wall; ratio, by wall")  # fmt: skip
    found: list[tuple[float, float]] = []
    for name in names:
        with TemporaryDirectory() as path:
            folder = Path(path)
            rows = prepare(name, machine, ranks, folder)
            (folder / "paths.json").write_text(json.dumps([row["path"] for row in rows]))
            if launch(["--folder", path, "--rounds", str(args.rounds)], ranks, [__file__]):
                print(f"{name:14} failed")
                continue
            for row, (wall, spent) in zip(rows, json.loads((folder / "times.json").read_text()), strict=True):
                row |= {"wall": wall, "processor": spent}
        found.append(show(name, rows, args.words))
    if found:
        correlations, ratios = zip(*found, strict=True)
        print(f"rank correlation: median {statistics.median(correlations):.2f}, at least 0.8 in "
              f"{sum(r >= 0.8 - 1e-9 for r in correlations)} of {len(found)}; ratio at most 1.05 in "
              f"{sum(r <= 1.05 for r in ratios)}, worst {max(ratios):.2f}", flush=True)  # fmt: skip


def calibrated(ranks: int, folder: Path) -> Machine:
    """Returns this machine as it is calibrated on some ranks."""
    path = folder / f"this-{ranks}.toml"
    command = ["-m", "hloom", "machine", "calibrate", "--ranks", str(ranks), "-o", str(path)]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return hloom.parse_machine(str(path))


def main() -> int:
    """Starts the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--machine", default="", help="a machine file, instead of calibrating")
    parser.add_argument("--words", action="store_true", help="show each candidate")
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if inside_launcher():
        return finish_rank(lambda: measure(Path(args.folder), args.rounds))
    for ranks in args.ranks:
        with TemporaryDirectory() as path:
            machine = hloom.parse_machine(args.machine) if args.machine else calibrated(ranks, Path(path))
        table(ranks, args.names or list(PROGRAMS), machine, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
