"""Measures how long a planner takes to judge one more sharding of a program that it knows, against the whole way.

    PYTHONPATH=.import python bench/second_sharding.py [--layers 32] [--devices 8 512] [--machine h100] [--runs 6]

Needs JAX. The program is that of `llama_compile.py` without annotations. Each row has processor seconds of the first
sharding, and the median of others that differ from it in one class of equal ops or in two: once by short programs with
a few of the layers (`hloom/passes/planning/short_programs.py`), once by the whole program and a quick schedule. `off`
is by how much the time of the step differs between both, at most. `told` counts those that the short programs tell; the
others are judged whole.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import hloom
from hloom.cost.presets import PRESETS
from hloom.ir.gc_pause import paused_collector
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.model import Choice
from hloom.passes.planning.near import neighbours
from hloom.passes.planning.on_mesh import MeshPlan
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.short_programs import ShortPrograms
from hloom.passes.planning.time_left import WITHOUT_END
from llama_compile import MESHES, program, seconds

WITHOUT_LIMIT = 10**16  # bytes: each choice is judged, also those that do not fit


def mesh_plan(layers: int, devices: int, machine: str) -> tuple[MeshPlan, PassContext]:
    module = hloom.parse(program("both", layers, devices))
    hloom.strip_annotations(module)
    mesh = Mesh.of(**dict(zip(("data", "model"), MESHES[devices], strict=True)))
    context = PassContext(machine=PRESETS[machine].of_devices(devices))
    classes = Classes(Clusters(prepared(module), context.forms), context.machine)
    on = MeshPlan(classes, context, mesh, context.machine.capacity)
    on.usual.search(10)
    on.limit = WITHOUT_LIMIT
    return on, context


def row(layers: int, devices: int, machine: str, runs: int) -> str:
    """Returns the line of the table for one mesh."""
    on, context = mesh_plan(layers, devices, machine)
    short = ShortPrograms.of(on.model.of.clusters.module)
    if short is None:
        return f"{devices:7}  fewer than twelve equal layers"

    def quickly(choice: Choice) -> tuple[float, float]:
        taken, judged = seconds(lambda: on.by_few_layers(choice, context, short))
        return taken, judged.seconds if judged is not None else 0.0

    def wholly(choice: Choice) -> tuple[float, float]:
        taken, judged = seconds(lambda: on.quick(choice, context, WITHOUT_LIMIT, WITHOUT_END))
        return taken, judged.seconds

    best = min(on.usual.found, key=lambda named: on.costs.value(named[1]).price(on.limit))[1]
    with paused_collector():
        first, _ = quickly(best)
        others = list(itertools.islice(neighbours(on, best), 1, 1 + runs))
        found = [(quickly(choice), wholly(choice)) for choice in others]
    errors = [abs(short_way[1] / whole[1] - 1) for short_way, whole in found if short_way[1]]
    few, all_s = (statistics.median(pair[way][0] for pair in found) for way in (0, 1))
    off, told = max(errors, default=0), f"{len(errors)}/{len(found)}"
    return f"{devices:7}  {first:7.2f}  {few:7.2f}  {all_s:7.2f}  {few / all_s:5.2f}  {off:6.2%}  {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 512])
    parser.add_argument("--machine", default="h100")
    parser.add_argument("--runs", type=int, default=6)
    args = parser.parse_args()
    print("devices  first s  other s  whole s  ratio     off  told")
    for devices in args.devices:
        print(row(args.layers, devices, args.machine, args.runs), flush=True)


if __name__ == "__main__":
    main()
