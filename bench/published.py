"""Compares forecasts with what a paper measured: GShard's step times (Lepikhin et al., 2020, table 1) on TPU v3 cores.

    python bench/published.py [--memory 32GB]

Needs JAX. The programs are those of examples/models/experts.py on the paper's numbers of devices, from shapes alone;
nothing of the forecast was fitted to these times. Memory is larger than a core's by default: the paper's optimizer
keeps less state than AdamW. Rows of 128 devices are left out: text and table of the paper disagree about their batch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import hloom
from hloom.cost.presets import PRESETS
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import experts

# Experts, which is devices; layers; steps per second.
MEASURED = ((2048, 36, 0.72), (2048, 12, 2.15), (512, 36, 1.05), (512, 12, 3.28))


def main() -> None:
    """Prints forecasts, measurements and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=float, default=32.0, metavar="GB", help="of a device")
    memory = int(parser.parse_args().memory * 1e9)
    machine = PRESETS["tpu-v3"]
    ratios: list[float] = []
    print(f"{'devices':>7} {'layers':>6} {'measured':>9} {'forecast':>9} {'ratio':>6} {'exposed':>8} {'peak GB':>8}")
    for devices, layers, rate in MEASURED:
        module = experts.experts(experts.gshard(devices, layers), {"data": devices}).module
        module = schedule(partition(module, PassContext(machine=machine)), PassContext(machine=machine), memory)
        found = hloom.timeline(module, machine)
        peak = hloom.live_memory(module).peak
        ratios.append(found.seconds * rate)
        print(f"{devices:>7} {layers:>6} {1e3 / rate:>6.0f} ms {1e3 * found.seconds:>6.0f} ms {ratios[-1]:>6.2f} "
              f"{found.exposed / found.seconds:>8.1%} {peak / 1e9:>8.1f}")
    print(f"median ratio {statistics.median(ratios):.2f}, worst {max(ratios, key=lambda r: max(r, 1 / r)):.2f}")


if __name__ == "__main__":
    main()
