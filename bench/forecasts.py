"""Compares forecasts with what papers and projects published, and forecasts the papers' models on a machine.

    python bench/forecasts.py [NAME ..]                               # published rows, or those with such names
    python bench/forecasts.py --models [NAME ..] [--machine tpu-v5p]  # the models of examples/models at their own size

Needs JAX. Programs come from shapes alone. Published are steps per second of GShard (Lepikhin et al., 2020, table 3),
tokens per second of Lingvo's configurations of GSPMD's models (lingvo/tasks/lm/params/synthetic_packed_input.py) and of
torchtitan's benchmarks of Llama 3.1. No number of a machine was fitted to any of these rows: each has its source in its
file. Below a table stand the median and the worst error, Kendall's rank correlation, and where a table has them the
growth from one row to another and the share of all-to-alls.

What rows leave to assume. GShard: encoder and decoder count as one stack, sentences have 128 tokens (the paper says
that sequences are short), activations are f32 (section 4.3). Rows of 128 devices are left out: text and table disagree
about their batch. What it says of 128 and 2,048 experts is compared for the forward layers, with as many tokens per
device. torchtitan: cards of 500 W with 2.4 TB/s of
memory, whose lower clock is not modelled; selective recomputation for 8B; the row of 405B has FSDP where the published
one has an interleaved pipeline. Not forecast: rows of float8, asynchronous tensor parallelism,
context parallelism and micro-batches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.collectives import kind_of
from hloom.cost.runs import runs
from hloom.cost.seconds import Clock
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import Role
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition, schedule
from hloom.report.measured import kendall

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import MODELS, dense, experts
from selective import Selective

TORCHTITAN = "h100;memory=2.4TB"
MEMORY = int(500e9)  # more than devices have: papers keep less optimizer state than AdamW, and fuse more


@dataclass(frozen=True)
class Row:
    """A published step: its table and name, the seconds, the machine, and the program."""

    table: str
    name: str
    seconds: float
    machine: str
    program: Callable[[], Any]


def lingvo(name: str, model: dense.Transformer, mesh: tuple[int, int], rate: float) -> Row:
    axes = {"data": mesh[0], "model": mesh[1]}
    seconds = model.batch * model.sequence / rate
    return Row("Lingvo", name, seconds, "tpu-v3", lambda: dense.dense(model, axes, dense.FINALIZED))


def gshard(devices: int, layers: int, rate: float) -> Row:
    model = experts.gshard(devices, layers)
    sentences = replace(model.model, dtype="float32", sequence=128, batch=16 * devices)
    model = replace(model, model=sentences)
    name = f"{devices} experts, {layers} layers"
    return Row("GShard", name, 1 / rate, "tpu-v3", lambda: experts.experts(model, {"data": devices}))


def llama(
    name: str, model: dense.Transformer, mesh: tuple[int, int], sequences: int, rate: float, selective: bool
) -> Row:
    """A row of torchtitan: `sequences` per data-parallel rank, `rate` tokens per second and GPU."""
    data, tensor = mesh
    model = replace(model, batch=sequences * data)
    axes, table = {"data": data, "model": tensor}, dense.FSDP_SEQUENCE
    if tensor == 1:
        axes, table = {"data": data}, dense.FSDP
    made = Selective.of(model) if selective else model
    seconds = sequences * model.sequence / tensor / rate
    return Row("torchtitan", name, seconds, TORCHTITAN, lambda: dense.dense(made, axes, table))


WIDE = replace(dense.LM_175B, layers=24, batch=256)
ROWS = [
    lingvo("128B, 8x16", dense.LM_128B, (8, 16), 3.7e3),
    lingvo("128B, 16x32", replace(dense.LM_128B, batch=128), (16, 32), 18e3),
    lingvo("128B, 32x64", replace(dense.LM_128B, batch=512), (32, 64), 62e3),
    lingvo("1T, 16x32", dense.LM_1T, (16, 32), 1.4e3),
    lingvo("175B, 64x32", dense.LM_175B, (64, 32), 51.53e3),
    lingvo("12k wide 41B, 16x32", WIDE, (16, 32), 53.8e3),
    lingvo("12k wide 162B, 16x32", replace(WIDE, layers=96, batch=64), (16, 32), 12.5e3),
    gshard(2048, 36, 0.72),
    gshard(2048, 12, 2.15),
    gshard(512, 36, 1.05),
    gshard(512, 12, 3.28),
    llama("8B, 8, compiled", dense.LLAMA_8B, (8, 1), 2, 6667, True),
    llama("8B, 128, compiled", dense.LLAMA_8B, (128, 1), 2, 6514, True),
    llama("70B, 32x8", dense.LLAMA_70B, (32, 8), 16, 829, False),
    llama("405B, 64x8", dense.LLAMA_405B, (64, 8), 4, 128, False),
]
GROWTH = (("GShard", "512 experts, 12 layers", "2048 experts, 12 layers"),
          ("GShard", "512 experts, 36 layers", "2048 experts, 36 layers"),
          ("Lingvo", "128B, 16x32", "128B, 32x64"),
          ("torchtitan", "8B, 8, compiled", "8B, 128, compiled"))  # fmt: skip
FEW, MANY = (gshard(experts, 12, 1.0) for experts in (128, 2048))  # section 5.3: what it says of these two
LAYERS_GROW, ALL_TO_ALLS_GROW, SHARES = 1.7, 3.75, (0.16, 0.36)


@dataclass(frozen=True)
class Found:
    """Seconds of a step, those that wait for collectives, bytes at the peak, seconds of a trip of the forward layers
    and of its all-to-alls if it has any, and the processor seconds that partitioning and scheduling took.
    """

    seconds: float
    exposed: float
    peak: int
    layers: float
    all_to_alls: float
    processor: float


def forecast(module: Module, machine: hloom.Machine, memory: int = 0) -> Found:
    """Partitions and schedules a module. Raises CompileError if it does not fit."""
    start = time.process_time()
    context = PassContext(machine=machine)
    module = schedule(partition(module, context), context, memory)
    found = hloom.timeline(module, machine)
    spent = time.process_time() - start
    peak = hloom.live_memory(module, Clock.of(module, machine)).peak
    return Found(found.seconds, found.exposed, peak, *forward(module, machine), spent)


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
        one = found[row.table, row.name] = forecast(row.program().module, hloom.parse_machine(row.machine), MEMORY)
        print(f"{row.table:<11} {row.name:<24} {1e3 * row.seconds:>7,.0f} ms {1e3 * one.seconds:>7,.0f} ms "
              f"{one.seconds / row.seconds:>6.2f} {one.exposed / one.seconds:>8.1%} {one.peak / 1e9:>8.1f}",
              flush=True)  # fmt: skip
    for table in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == table]
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
    if any(row.table == "GShard" for row in rows):
        few, many = (forecast(row.program().module, hloom.parse_machine(row.machine), MEMORY) for row in (FEW, MANY))
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
