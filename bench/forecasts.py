"""Compares forecasts with what a paper measured, and forecasts the papers' models on a machine.

    python bench/forecasts.py [--memory 32]                           # GShard's step times on TPU v3 cores
    python bench/forecasts.py --models [NAME ..] [--machine tpu-v5p]  # the models of examples/models at their own size

Needs JAX. Programs come from shapes alone. The measured times are those of Lepikhin et al., 2020, table 1; nothing of
the forecast was fitted to them. Memory is larger than a core's by default there: the paper's optimizer keeps less state
than AdamW. Rows of 128 devices are left out: text and table of the paper disagree about their batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import hloom
from hloom.cost.presets import PRESETS
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import MODELS, experts

# Experts, which is devices; layers; steps per second.
MEASURED = ((2048, 36, 0.72), (2048, 12, 2.15), (512, 36, 1.05), (512, 12, 3.28))


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, those that wait for collectives, and bytes at the peak of memory."""

    seconds: float
    exposed: float
    peak: int


def forecast(module: Module, machine: hloom.Machine, memory: int = 0) -> Forecast:
    """Partitions and schedules a module. Raises CompileError if it does not fit."""
    context = PassContext(machine=machine)
    module = schedule(partition(module, context), context, memory)
    found = hloom.timeline(module, machine)
    return Forecast(found.seconds, found.exposed, hloom.live_memory(module).peak)


def measured(memory: int) -> None:
    """Prints forecasts, measurements and their ratios, and how both grow from few devices to many."""
    seconds: dict[tuple[int, int], tuple[float, float]] = {}
    print(f"{'devices':>7} {'layers':>6} {'measured':>9} {'forecast':>9} {'ratio':>6} {'exposed':>8} {'peak GB':>8}")
    for devices, layers, rate in MEASURED:
        program = experts.experts(experts.gshard(devices, layers), {"data": devices})
        found = forecast(program.module, PRESETS["tpu-v3"], memory)
        seconds[devices, layers] = 1 / rate, found.seconds
        print(f"{devices:>7} {layers:>6} {1e3 / rate:>6.0f} ms {1e3 * found.seconds:>6.0f} ms "
              f"{found.seconds * rate:>6.2f} {found.exposed / found.seconds:>8.1%} {found.peak / 1e9:>8.1f}")
    few, many = (choose(devices for devices, _ in seconds) for choose in (min, max))
    for layers in dict.fromkeys(layers for _, layers in seconds):
        grown = [b / a for a, b in zip(seconds[few, layers], seconds[many, layers], strict=True)]
        print(f"{layers} layers, from {few} devices to {many}: measured x {grown[0]:.2f}, forecast x {grown[1]:.2f}")


def models(names: list[str], machine: str) -> None:
    """Prints the forecast of each model on a machine, and the processor seconds that it took."""
    print(f"{'':<18} {'devices':>7} {'step':>10} {'exposed':>8} {'peak GB':>8} {'compiled':>9}")
    for name in names:
        program = MODELS[name].paper()
        module, start = program.module, time.process_time()
        try:
            found = forecast(module, PRESETS[machine])
        except hloom.CompileError as error:
            print(f"{name:<18} {program.layout.devices:>7} {error.diagnostics[0].message}", flush=True)
            continue
        print(f"{name:<18} {program.layout.devices:>7} {1e3 * found.seconds:>7,.0f} ms "
              f"{found.exposed / found.seconds:>8.1%} {found.peak / 1e9:>8.1f} {time.process_time() - start:>7.1f} s",
              flush=True)  # fmt: skip


def main() -> None:
    """Reads the arguments and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=float, default=32.0, metavar="GB", help="of a device, for the measured models")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="forecast these models, or all")
    parser.add_argument("--machine", choices=sorted(PRESETS), default="tpu-v5p")
    arguments = parser.parse_args()
    if arguments.models is None:
        measured(int(arguments.memory * 1e9))
    else:
        models(arguments.models or list(MODELS), arguments.machine)


if __name__ == "__main__":
    main()
