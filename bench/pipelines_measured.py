"""Measures the step of a circular pipeline beside that of GPipe, for the same model on ranks of this machine, and what
the forecast says of both.

    PYTHONPATH=.import:tests:bench python bench/pipelines_measured.py [--stages 4] [--microbatches 4] [--rounds 2]

Both are the training step of `examples/models/pipeline.py`: one program for all stages, which compute in every trip of
the loop, also those that fill and drain the pipeline. A trip of the circular pipeline takes a micro-batch through one
part in `rounds` of a stage's layers. So GPipe computes M + S - 1 stages for M micro-batches on each of S ranks, and the
circular pipeline M + (S - 1) / rounds; `ideal` is the ratio of these numbers. Since no rank is ever idle in either
program, ranks that share a core take longer by the same factor in both: the ratio is that of a machine with a core per
rank, as long as stages compute longer than messages and switches between ranks take.

Both programs run in turns, the least time of each counts; `processor` is the ratio of the processor time of all ranks.
The forecast takes products at the rate at which GPipe computes on the ranks, slices and concatenations at the rate at
which they move memory here, and the link: that of the ranks' shared memory, or a slower one, on which collectives end
as `overlap_measured.py` says. No time of the circular pipeline goes into it. Needs JAX.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloom
import numpy as np
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.scheduling import schedule
from hloom.runtime.ranks.launch import finish_rank, inside_launcher, launch, world
from overlap_measured import RING, Run, fitted, moved_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

SLOW = "1 Gbit/s"
LINKS = {"shared memory": "100us/1GB", SLOW: "2ms/125MB"}
RATES = "work=f32:40G;memory=10GB"  # for which programs are scheduled; their forecasts take those that are measured


@dataclass(frozen=True)
class Sizes:
    """A model in stages: micro-batches, and the rounds of the circular pipeline."""

    stages: int
    microbatches: int
    rounds: int
    width: int
    batch: int

    def text(self, rounds: int) -> str:
        """Returns the training step in so many rounds, as HLO text."""
        from models import dense, pipeline

        model = dense.Transformer(layers=self.stages * self.rounds, width=self.width, hidden=4 * self.width,
                                  heads=self.width // 64, head=64, batch=self.batch, sequence=128, vocabulary=128,
                                  dtype="float32", remat=True)  # fmt: skip
        staged = pipeline.Pipeline(model, self.stages, self.microbatches, rounds)
        return pipeline.pipeline(staged, {"stage": self.stages, "data": 1, "model": 1}, dense.MEGATRON).module.to_text()

    @property
    def ideal(self) -> float:
        """Trips of the circular pipeline over those of GPipe, by the layers that each computes."""
        filled = self.stages - 1
        return (self.microbatches + filled / self.rounds) / (self.microbatches + filled)


def prepare(sizes: Sizes, folder: Path) -> None:
    """Writes both programs of a rank, scheduled for each link."""
    wholes = [sizes.text(rounds) for rounds in (1, sizes.rounds)]
    for number, link in enumerate(LINKS.values()):
        context = PassContext(machine=hloom.parse_machine(RATES, link))
        for kind, text in enumerate(wholes):
            local = schedule(partition(hloom.parse(text), context), context)
            (folder / f"{number}.{kind}.hlo").write_text(local.to_text())


def measure(sizes: Sizes, folder: Path, repeat: int) -> int:
    """Prints the table, on rank 0."""
    comm = world()
    if comm.rank == 0:
        np.memmap(folder / "starts", np.float64, "w+", shape=(comm.size, RING))
        print(f"{sizes.stages} stages, {sizes.microbatches} micro-batches, {sizes.rounds} rounds; "
              f"{comm.size} ranks on {len(os.sched_getaffinity(0))} processors; ideal {sizes.ideal:.3f}\n"
              "                      gpipe ms           circular ms        circular / gpipe\n"
              "link           forecast  measured  forecast  measured  forecast  measured  processor",
              flush=True)  # fmt: skip
    comm.Barrier()
    starts = np.memmap(folder / "starts", np.float64, "r+", shape=(comm.size, RING))
    for number, name in enumerate(LINKS):
        row(name, [hloom.load(folder / f"{number}.{kind}.hlo") for kind in range(2)], repeat, starts)
    comm.Barrier()
    del starts
    return 0


def row(name: str, locals_: list[Module], repeat: int, starts: Any) -> None:
    """Measures both programs on a link, and prints their row."""
    comm, link = world(), LINKS[name]
    runs = [Run.of(local) for local in locals_]
    alone = min(runs[0].seconds(None, starts, processor=False) for _ in range(repeat))
    machine = fitted(runs[0].module, link, *comm.bcast((moved_bytes(), alone), root=0))
    slow = machine if name == SLOW else None
    walls: list[list[float]] = [[], []]
    works: list[list[float]] = [[], []]
    for _ in range(repeat):
        for number, run in enumerate(runs):
            begin = time.process_time()
            walls[number].append(run.seconds(slow, starts, processor=False))
            works[number].append(sum(comm.allgather(time.process_time() - begin)))
    told = [timeline(run.module, machine).seconds for run in runs]
    for run in runs:
        run.program.close()
    if comm.rank == 0:
        (before, after), (all_before, all_after) = map(min, walls), map(min, works)
        shown = "".join(f"{t * 1e3:10.1f}" for t in (told[0], before, told[1], after))
        print(f"{name:13}{shown} {told[1] / told[0]:9.3f} {after / before:9.3f} {all_after / all_before:10.3f}",
              flush=True)  # fmt: skip


def main() -> int:
    """Starts the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stages", type=int, default=4, help="and ranks")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8, help="sequences of 128 in a micro-batch")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = Sizes(args.stages, args.microbatches, args.rounds, args.width, args.batch)
    if inside_launcher():
        return finish_rank(lambda: measure(sizes, args.folder, args.repeat))
    with TemporaryDirectory() as folder:
        prepare(sizes, Path(folder))
        return launch([*sys.argv[1:], "--folder", folder], args.stages, [__file__])


if __name__ == "__main__":
    sys.exit(main())
