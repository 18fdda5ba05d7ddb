"""Measures how much time schedules hide, beside their forecast: programs of tensor, expert, pipeline and fully sharded
data parallelism on two ranks of this machine, whose collectives take as long as on a slow link.

    PYTHONPATH=.import:tests python bench/overlap_measured.py [--repeat 9] [--processor] [TP EP PP FSDP ..]

Each program runs as it is partitioned, and as `hloom schedule --split-batch 2` orders it, in turns; the least time of
each counts. A collective ends on all its ranks `latency + bytes / bandwidth` after the last of them has started it and
the one before has ended, whatever the ranks compute meanwhile: the times of starts are in memory that the ranks share.
Nothing else is slowed, and ranks sleep while they wait. With `--processor` the time of a rank is the processor time
that it computes, and the time that it would wait. Then other work on the machine does not count, nor do the moments
until a rank that sleeps runs again.

The forecast takes the same link, the bytes per second that slices and concatenations move here, and products at the
rate at which the partitioned program `computes` on the ranks without the link; no time of the scheduled program goes
into it. That computes more slowly than the forecast says where smaller products, more copies and more starts of
collectives cost more here than these. Times are milliseconds; `off` is the error of the forecast of the scheduled
program.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloom
import numpy as np
from hloom.cost.machine import Machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.driver.backend import Backend
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.scheduling import schedule
from hloom.runtime.fabric.collective import GridCollective, Operands
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.launch import finish_rank, inside_launcher, launch, world
from support.layered_programs import Model

RANKS = 2
LINKS = {"200 Mbit/s": "2ms/25MB", "1 Gbit/s": "2ms/125MB"}
RING = 4096  # starts that the shared memory holds


def tensor(hidden: int) -> str:
    """Returns a training step of two layers whose activations are summed."""
    return Model(layers=2, batch=1024, width=256, hidden=hidden, data=1, model=2, kind="tp", loop=False).text()


def fully_sharded(hidden: int) -> str:
    """Returns a training step of three layers whose weights are gathered, and their gradients scattered."""
    return Model(layers=3, batch=1024, width=256, hidden=hidden, data=2, kind="fsdp", loop=False).text()


def experts(hidden: int) -> str:
    """Returns two layers of experts, to which tokens go by an all-to-all and from which they come by another."""
    mesh, x = "mesh['d'=2]", "f32[2,2,512,256]"
    rows, columns = (f"sharding={{{mesh}, [{d}, {{}}, {{}}]}}" for d in ("{'d'}, {}", "{}, {'d'}"))
    lines = [f"  x0 = {x} parameter(0), {rows}"]
    for k in (1, 2):
        by = f"sharding={{{mesh}, [{{'d'}}, {{}}, {{}}]}}"
        lines += [f"  a{k} = f32[2,256,{hidden}] parameter({2 * k - 1}), {by}",
                  f"  b{k} = f32[2,{hidden},256] parameter({2 * k}), {by}"]  # fmt: skip
        h = f"f32[2,2,512,{hidden}]"
        lines += [
            f"  there{k} = {x} copy(x{k - 1}), {columns}",
            f"  h{k} = {h} dot(there{k}, a{k}), lhs_batch_dims={{1}}, rhs_batch_dims={{0}}, "
            "lhs_contracting_dims={3}, rhs_contracting_dims={1}",
            f"  t{k} = {h} tanh(h{k})",
            f"  y{k} = {x} dot(t{k}, b{k}), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}}, "
            "rhs_contracting_dims={1}",
            f"  back{k} = {x} transpose(y{k}), dimensions={{1,0,2,3}}, {columns}",
            f"  x{k} = {x} copy(back{k}), {rows}",
        ]
    root = "  ROOT r = (f32[2,2,512,256]) tuple(x2)"
    return "\n".join(["HloModule experts, num_partitions=2", "ENTRY e {", *lines, root, "}"])


def pipeline(hidden: int) -> str:
    """Returns two stages through which four micro-batches go."""
    s, h, by = "f32[2,1024,256]", f"f32[2,1024,{hidden}]", "sharding={mesh['stage'=2], [{'stage'}, {}, {}]}"
    dot = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    lines = [f"  x = f32[4,1024,256] parameter(0)\n  a = f32[2,256,{hidden}] parameter(1), {by}\n"
             f"  b = f32[2,{hidden},256] parameter(2), {by}\n  stage0 = {s} parameter(3), {by}"]  # fmt: skip
    for k in range(1, 6):
        begin = min(k - 1, 3)
        lines.append(f"""  i{k} = f32[1,1024,256] slice(x), slice={{[{begin}:{begin + 1}], [0:1024], [0:256]}}
  f{k} = f32[1,1024,256] slice(stage{k - 1}), slice={{[0:1], [0:1024], [0:256]}}
  m{k} = {s} concatenate(i{k}, f{k}), dimensions={{0}}, {by}
  h{k} = {h} dot(m{k}, a), {dot}
  t{k} = {h} tanh(h{k})
  stage{k} = {s} dot(t{k}, b), {dot}, {by}""")
    root = f"  ROOT r = ({s}, {s}, {s}, {s}) tuple(stage2, stage3, stage4, stage5)"
    return "\n".join(["HloModule pipeline, num_partitions=2", "ENTRY e {", *lines, root, "}"])


PROGRAMS: dict[str, Callable[[int], str]] = {"TP": tensor, "EP": experts, "PP": pipeline, "FSDP": fully_sharded}
HIDDEN = {"200 Mbit/s": 8192, "1 Gbit/s": 2048}  # such that products take about as long as messages, by processor time


@dataclass
class RankTime:
    """The time of a rank in seconds, by a clock; `skipped` of them pass at once."""

    clock: Callable[[], float]
    skips: bool
    begin: float = 0.0
    skipped: float = 0.0

    @staticmethod
    def of(program: MpiProgram, processor: bool) -> RankTime:
        """Begins the time: of the wall, or of the processor without waits for other ranks."""
        watch = program.watch
        clock = (lambda: time.process_time() - watch.waiting) if processor else time.monotonic
        return RankTime(clock, processor, clock() if processor else 0.0)

    def now(self) -> float:
        """Returns the time; that of the wall is the same for all ranks, others begin with the run."""
        return self.clock() - self.begin + self.skipped

    def wait_until(self, end: float) -> None:
        """Waits, or lets the time pass."""
        if (left := end - self.now()) <= 0.0:
            return
        if self.skips:
            self.skipped += left
        else:
            time.sleep(left)


@dataclass
class SlowFabric:
    """Connects devices as another fabric does, on a link of the forecast, or on one that takes no time without a clock.
    `starts` are those of all ranks, by `time`.
    """

    fabric: Any
    clock: Clock | None
    rank: int
    starts: np.ndarray[Any, Any]
    time: RankTime
    seconds: list[float] = field(default_factory=list[float])
    ends: list[float] = field(default_factory=lambda: [0.0])

    def start(self, collective: GridCollective, devices: Sequence[int], operands: list[Operands]) -> tuple[int, Any]:
        """Starts a collective."""
        number = len(self.seconds)
        self.seconds.append(self.clock.started(collective.instruction) if self.clock is not None else 0.0)
        self.starts[self.rank, number % RING] = self.time.now()
        return number, self.fabric.start(collective, devices, operands)

    def wait(self, handle: tuple[int, Any]) -> list[Operands]:
        """Returns the results once the link has brought them."""
        number, inner = handle
        results: list[Operands] = self.fabric.wait(inner)  # so all ranks have started it, and those before
        while len(self.ends) <= number + 1:
            known = len(self.ends) - 1
            begun = max(float(self.starts[:, known % RING].max()), self.ends[-1])
            self.ends.append(begun + self.seconds[known])
        self.time.wait_until(self.ends[number + 1])
        return results

    needs_progress = False

    def progress(self) -> None:
        """Does nothing: ranks of one machine share memory."""


@dataclass(frozen=True)
class Run:
    """A program on this rank."""

    program: MpiProgram
    inputs: Any
    module: Module

    @staticmethod
    def of(local: Module) -> Run:
        """Compiles a program for the ranks, in its order."""
        backend, ordered = Backend("native"), clone_module(local)
        ordered.is_scheduled = True
        prepared = backend.prepared(ordered)
        program = MpiProgram(prepared, world(), kernels=backend.kernels(), collectives="shared")
        shapes = [p.shape for p in prepared.entry.parameters]
        inputs = [make_inputs(shapes, seed=device) for device in program.devices]
        return Run(program, inputs, prepared)

    def seconds(self, machine: Machine | None, starts: np.ndarray[Any, Any], processor: bool) -> float:
        """Returns the seconds of a run from all ranks' start to all ranks' end; on no link without a machine."""
        comm, clock = world(), Clock.of(self.module, machine) if machine is not None else None
        comm.Barrier()
        passed = RankTime.of(self.program, processor)
        slow = SlowFabric(self.program.fabric, clock, comm.rank, starts, passed)
        begin = passed.now()
        self.program.executable.run(self.program.devices, self.inputs, slow)
        mine = passed.now() - begin
        found: list[float] = comm.allgather(mine)
        return max(found)


def measure(names: Sequence[str], repeat: int, processor: bool) -> int:
    """Prints the table, on rank 0."""
    comm = world()
    with TemporaryDirectory() as folder:
        path = comm.bcast(str(Path(folder, "starts")), root=0)
        if comm.rank == 0:
            np.memmap(path, np.float64, "w+", shape=(RANKS, RING))
        comm.Barrier()
        starts = np.memmap(path, np.float64, "r+", shape=(RANKS, RING))
        if comm.rank == 0:
            print("                     partitioned                   scheduled")
            print("program  link        computes  forecast  measured  computes  forecast  measured   off  hides "
                  "forecast")  # fmt: skip
        for name in names:
            for link, text in LINKS.items():
                row(name, link, text, repeat, starts, processor)
        comm.Barrier()
        del starts
    return 0


def row(name: str, link: str, text: str, repeat: int, starts: np.ndarray[Any, Any], processor: bool) -> None:
    """Measures a program on a link, and prints its row."""
    comm = world()
    whole = hloom.parse(PROGRAMS[name](HIDDEN[link]))
    local = partition(whole, PassContext(machine=hloom.parse_machine("", text)))
    plain = Run.of(local)
    alone = min(plain.seconds(None, starts, processor) for _ in range(repeat))
    machine = fitted(plain.module, text, *comm.bcast((moved_bytes(), alone), root=0))
    ordered = clone_module(local)
    schedule(ordered, PassContext(machine=machine), split=2)
    ahead = Run.of(ordered)
    times = [(plain.seconds(machine, starts, processor), ahead.seconds(None, starts, processor),
              ahead.seconds(machine, starts, processor)) for _ in range(repeat)]  # fmt: skip
    before, computes, after = map(min, zip(*times, strict=True))
    told = [timeline(r.module, machine).seconds for r in (plain, ahead)]
    for run in (plain, ahead):
        run.program.close()
    if comm.rank == 0:
        shown = "".join(f"{t * 1e3:10.1f}" for t in (alone, told[0], before, computes, told[1], after))
        print(f"{name:8} {link:10}{shown} {told[1] / after - 1:+5.0%} {1 - after / before:6.0%} "
              f"{1 - told[1] / told[0]:9.0%}", flush=True)  # fmt: skip


def moved_bytes() -> float:
    """Returns the bytes per second that slices and concatenations of half a megabyte read and write."""
    lines = [f"""  a{k} = f32[256,256] slice(x{k - 1}), slice={{[256:512], [0:256]}}
  b{k} = f32[256,256] slice(x{k - 1}), slice={{[0:256], [0:256]}}
  {"ROOT " if k == 20 else ""}x{k} = f32[512,256] concatenate(a{k}, b{k}), dimensions={{0}}""" for k in range(1, 21)]
    text = "\n".join(["HloModule m", "ENTRY e {", "  x0 = f32[512,256] parameter(0)", *lines, "}"])
    program = hloom.compile(hloom.parse(text), backend="native")
    inputs, times = make_inputs([program.module.entry.parameters[0].shape], seed=0), list[float]()
    for _ in range(20):
        begin = time.process_time()
        program.simulate(inputs)
        times.append(time.process_time() - begin)
    return 20 * 2 * inputs[0].nbytes / statistics.median(times)


def fitted(module: Module, link: str, memory: float, seconds: float) -> Machine:
    """Returns a machine with this link and memory, whose products take the rest of these seconds."""
    low, high = 1e6, 1e13
    while True:
        rate = math.sqrt(low * high)
        machine = hloom.parse_machine(f"work=f32:{rate / 1e9:.6f}G;memory={memory / 1e9:.3f}GB", link)
        if high < 1.001 * low:
            return machine
        low, high = (rate, high) if timeline(module, machine).compute > seconds else (low, rate)


def main() -> int:
    """Starts the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--processor", action="store_true", help="measure processor time and waits")
    args = parser.parse_args()
    if inside_launcher():
        return finish_rank(lambda: measure(args.names or list(PROGRAMS), args.repeat, args.processor))
    return launch(sys.argv[1:], RANKS, [__file__])


if __name__ == "__main__":
    sys.exit(main())
