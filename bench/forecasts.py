"""Compares forecasts with what papers and projects published, and forecasts the papers' models on a machine.

    python bench/forecasts.py [NAME ..]                               # published rows, or those with such names
    python bench/forecasts.py --models [NAME ..] [--machine tpu-v5p]  # the models of examples/models at their own size

Needs JAX. Programs come from shapes alone. `published_steps.py` has the rows, and what they leave to assume. No number
of a machine was fitted to any of them: each has its source in its file. Below a table stand the median and the worst
error, Kendall's rank correlation, and where a table has them the growth from one row to another and the share of
all-to-alls. What GShard's paper says of 128 and 2,048 experts is compared for the forward layers, with as many tokens
per device. The rows of 36 and of 12 layers also say what a layer takes, and what does not grow with the layers.

As most published steps, forecasts save what the programs say, and hide collectives of weights and gradients only;
`--models` and rows that hide those of activations have Hloom's whole schedule.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import hloom
from hloom.cost.collectives import kind_of
from hloom.cost.runs import runs
from hloom.cost.seconds import Clock
from hloom.cost.sizes import Bytes
from hloom.cost.timeline import Timeline
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import Role
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.pipelines import partition
from hloom.passes.schedule.fastest import Fastest
from hloom.passes.schedule.limits import Limits
from hloom.passes.schedule.save_less import SaveLess
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.scheduling import SCHEDULE, schedule
from hloom.report.measured import kendall

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import MODELS
from published_steps import FEW, GROWTH, MANY, ROWS, Row

MEMORY = int(500e9)  # more than devices have: papers keep less optimizer state than AdamW, and fuse more
LAYERS_GROW, ALL_TO_ALLS_GROW, SHARES = 1.7, 3.75, (0.16, 0.36)


@dataclass(frozen=True)
class Found:
    """Seconds of a step, those that wait for collectives, bytes at the peak, seconds of a trip of the forward layers
    and of its all-to-alls if it has any, and the processor seconds that partitioning and scheduling took. In `late`
    seconds computation hides gathers in the loops that reduce gradients.
    """

    seconds: float
    exposed: float
    peak: int
    layers: float
    all_to_alls: float
    processor: float
    late: float = 0.0


def forecast(
    module: Module, machine: hloom.Machine, memory: int = 0, plain: bool = False, reduce_in: str | None = None
) -> Found:
    """Partitions and schedules a module. Raises CompileError if it does not fit. A `plain` schedule plans gathers of
    weights and reductions of gradients, and leaves the collectives that activations wait for in their place.
    """
    start = time.process_time()
    context = PassContext(machine=machine, reduce_in=reduce_in)
    module = partition(module, context)
    if plain:
        final = ScheduleCollectives(memory=Bytes(memory), limits=Limits(lists=()))
        fastest = Fastest(final=final, pieces=None, past_barriers=None, rotation=None, earlier=None)
        steps = [fastest if isinstance(p, Fastest) else p for p in SCHEDULE if not isinstance(p, SaveLess)]
        run_pipeline(steps, module, context)
    else:
        schedule(module, context, memory)
    found = hloom.timeline(module, machine)
    spent = time.process_time() - start
    peak = hloom.live_memory(module, Clock.of(module, machine)).peak
    return Found(found.seconds, found.exposed, peak, *forward(module, machine), spent, late(found))


def late(line: Timeline) -> float:
    """Returns the seconds in which computation hides gathers, in loops that reduce gradients."""
    events = [e for e in line.collectives if e.trips > 1]
    backward = {e.instruction.parent for e in events if kind_of(e.instruction) == "reduce-scatter"}
    gathers = [e for e in events if kind_of(e.instruction) == "all-gather" and e.instruction.parent in backward]
    return sum(e.trips * (e.seconds - e.waited) for e in gathers)


def usual(row: Row) -> Found:
    """Forecasts a published step with the schedule that such steps had."""
    module, machine = row.program().module, hloom.parse_machine(row.machine)
    found = forecast(module, machine, MEMORY, row.plain, row.reduce_in)
    return replace(found, seconds=found.seconds + found.late, exposed=found.exposed + found.late) if row.late else found


def forward(module: Module, machine: hloom.Machine) -> tuple[float, float]:
    """Returns the seconds of a trip of the first loop with all-to-alls, which computes the layers, and of these."""
    clock = Clock.of(module, machine)
    for run in runs(module):
        if run.instruction.op.role is Role.LOOP:
            inside = [i for c in run.instruction.called() for i in c if i.op.is_collective]
            exchanged = sum(clock.collective(i) for i in inside if kind_of(i) == "all-to-all")
            if exchanged:
                return sum(clock.serial(c).total for c in run.instruction.called()), exchanged
    return 0.0, 0.0


def published(names: list[str]) -> None:
    """Prints forecasts beside published steps, their ratios, and the errors of each table."""
    rows = [row for row in ROWS if not names or any(name in f"{row.table} {row.name}" for name in names)]
    print(f"{'':<11} {'':<24} {'published':>10} {'forecast':>10} {'ratio':>6} {'exposed':>8} {'peak GB':>8}")
    found: dict[tuple[str, str], Found] = {}
    for row in rows:
        one = found[row.table, row.name] = usual(row)
        print(f"{row.table:<11} {row.name:<24} {1e3 * row.seconds:>7,.0f} ms {1e3 * one.seconds:>7,.0f} ms "
              f"{one.seconds / row.seconds:>6.2f} {one.exposed / one.seconds:>8.1%} {one.peak / 1e9:>8.1f}",
              flush=True)  # fmt: skip
    for table in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == table and row.counts]
        if not own:
            continue
        errors = [abs(found[table, row.name].seconds / row.seconds - 1) for row in own]
        tau = kendall([row.seconds for row in own], [found[table, row.name].seconds for row in own])
        print(f"{table}: {len(own)} rows, error {statistics.median(errors):.0%} in the median, {max(errors):.0%} at "
              f"worst; rank correlation {'none' if tau is None else f'{tau:.2f}'}")  # fmt: skip
    seconds = {(row.table, row.name): row.seconds for row in rows}
    for table, few, many in GROWTH:
        if (table, few) in found and (table, many) in found:
            grown = [part[table, many] / part[table, few] for part in
                     (seconds, {key: one.seconds for key, one in found.items()})]  # fmt: skip
            print(f"{table}, {few} to {many}: published x {grown[0]:.2f}, forecast x {grown[1]:.2f}")
    for few, many, experts in ((12, 36, 512), (12, 36, 2048)):
        pair = [("GShard", f"{experts} experts, {layers} layers") for layers in (few, many)]
        if all(key in found for key in pair):
            truly = seconds[pair[1]] - seconds[pair[0]]
            ours = found[pair[1]].seconds - found[pair[0]].seconds
            print(f"GShard, {experts} experts, {many - few} layers more: published {1e3 * truly:,.0f} ms, forecast "
                  f"{1e3 * ours:,.0f} ms, {ours / truly:.2f}")  # fmt: skip
    if any(row.table == "GShard" for row in rows):
        few, many = (usual(row) for row in (FEW, MANY))
        print(f"GShard, 128 to 2048 experts: layers x {LAYERS_GROW}, forecast x {many.layers / few.layers:.2f}, "
              f"all-to-alls x {ALL_TO_ALLS_GROW}, forecast x {many.all_to_alls / few.all_to_alls:.2f}")  # fmt: skip
        shares = [one.all_to_alls / one.layers for one in (few, many)]
        print(f"GShard, share of all-to-alls in the forward layers: published {SHARES[0]:.0%} and {SHARES[1]:.0%}, "
              f"forecast {shares[0]:.0%} and {shares[1]:.0%}")  # fmt: skip


def models(names: list[str], machine: str) -> None:
    """Prints the forecast of each model on a machine, and the processor seconds that it took."""
    print(f"{'':<18} {'devices':>7} {'step':>10} {'exposed':>8} {'peak GB':>8} {'compiled':>9}")
    for name in names:
        program = MODELS[name].paper()
        try:
            found = forecast(program.module, hloom.parse_machine(machine))
        except hloom.CompileError as error:
            print(f"{name:<18} {program.layout.devices:>7} {error.diagnostics[0].message}", flush=True)
            continue
        print(f"{name:<18} {program.layout.devices:>7} {1e3 * found.seconds:>7,.0f} ms "
              f"{found.exposed / found.seconds:>8.1%} {found.peak / 1e9:>8.1f} {found.processor:>7.1f} s",
              flush=True)  # fmt: skip


def main() -> None:
    """Reads the arguments and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of published rows, or of models")
    parser.add_argument("--models", action="store_true", help="forecast the models in place of published rows")
    parser.add_argument("--machine", default="tpu-v5p", help="for the models")
    arguments = parser.parse_args()
    if arguments.models:
        models([name for name in MODELS if not arguments.names or name in arguments.names], arguments.machine)
    else:
        published(arguments.names)


if __name__ == "__main__":
    main()
