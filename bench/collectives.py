"""Measures the collectives of ranks on one machine: MPI against shared memory, beside copies, in the same run.

    python bench/collectives.py [--ranks 2] [--sizes 4K,64K,1M,4M,64M] [--runs 40]

Needs MPI. Operands and results are private arrays, as in a run of a program. The size is that of the larger of operand
and result on one rank, which `memcpy` copies into a new array. Both ways alternate; a time is the shortest of several
runs, each taken on the slowest rank. Ratios say how many times faster shared memory is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloom
import numpy as np
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.launch import finish_rank, inside_launcher, launch, world

Array = np.ndarray[Any, Any]

# Operand and result as fractions of the measured size over ranks r: 1 is the whole, "r" the part of one rank.
KINDS: dict[str, tuple[bool, bool, str]] = {
    "all-reduce": (True, True, "all-reduce(x), to_apply=add, use_global_device_ids=true, replica_groups={}"),
    "reduce-scatter": (
        True, False, "reduce-scatter(x), to_apply=add, use_global_device_ids=true, replica_groups={}, dimensions={0}",
    ),
    "all-gather": (False, True, "all-gather(x), use_global_device_ids=true, replica_groups={}, dimensions={0}"),
    "all-to-all": (True, True, "all-to-all(x), replica_groups={%s}, dimensions={0}"),
    "permute": (True, True, "collective-permute(x), source_target_pairs={%s}"),
    "broadcast": (True, True, "collective-broadcast(x), replica_groups={%s}"),
}


def program(kind: str, size: int, ranks: int) -> str:
    """Returns the HLO text of one collective on this many bytes of f32."""
    whole_in, whole_out, text = KINDS[kind]
    count = size // 4
    taken, made = (count if whole else count // ranks for whole in (whole_in, whole_out))
    ring = ",".join(f"{{{r},{(r + 1) % ranks}}}" for r in range(ranks))
    everyone = "{" + ",".join(map(str, range(ranks))) + "}"
    text = text.replace("%s", ring if "pairs" in text else everyone)
    return f"""HloModule m, num_partitions={ranks}
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
ENTRY e {{ x = f32[{taken}] parameter(0)  ROOT r = f32[{made}] {text}, channel_id=1 }}"""


def prepared(module: hloom.Module, mode: str) -> tuple[MpiProgram, Callable[[], object]]:
    """Returns a program and the function that runs its collective once."""
    ready = MpiProgram(module, world(), collectives=mode)
    (collective,) = ready.executable.compilation.collectives
    operand = np.ones(module.entry.parameters[0].shape.dims, np.float32)
    devices = list(ready.devices)
    return ready, lambda: ready.fabric.wait(ready.fabric.start(collective, devices, [[operand]]))


def measure(kind: str, size: int, runs: int) -> dict[str, float]:
    """Returns the seconds of each way."""
    comm = world()
    module = hloom.parse(program(kind, size, comm.size))
    array = np.ones(size // 4, np.float32)
    ways: dict[str, Callable[[], object]] = {"memcpy": array.copy}
    made: list[MpiProgram] = []
    for mode in ("mpi", "shared"):
        ready, ways[mode] = prepared(module, mode)
        made.append(ready)
    repeats = max(1, min(20, (1 << 20) // size))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            way()
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                way()
            found[name].append((time.perf_counter() - start) / repeats)
    for ready in made:
        ready.close()
    return {name: float(np.max(comm.allgather(times), axis=0).min()) for name, times in found.items()}


def in_bytes(text: str) -> int:
    """Returns the number of bytes that `4K` or `64M` says."""
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]


def main(arguments: argparse.Namespace) -> int:
    """Prints one line per kind and size, on rank 0."""
    first = world().rank == 0
    if first:
        print(f"{world().size} ranks; microseconds\n{'':16}{'size':>6}{'MPI':>11}{'shared':>11}{'memcpy':>11}"
              f"{'MPI/shared':>12}{'shared/memcpy':>15}")  # fmt: skip
    for kind in KINDS:
        for size in arguments.sizes.split(","):
            times = measure(kind, in_bytes(size), arguments.runs)
            mpi, shared, copy = (1e6 * times[name] for name in ("mpi", "shared", "memcpy"))
            if first:
                print(f"{kind:16}{size:>6}{mpi:11.1f}{shared:11.1f}{copy:11.1f}{mpi / shared:11.1f}x"
                      f"{shared / copy:14.1f}x", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default="4K,64K,1M,4M,64M")
    parser.add_argument("--runs", type=int, default=40)
    if not inside_launcher():
        ranks = parser.parse_args().ranks
        sys.exit(launch(sys.argv[1:], ranks, [str(Path(__file__))]))
    chosen = parser.parse_args()
    sys.exit(finish_rank(lambda: main(chosen)))
