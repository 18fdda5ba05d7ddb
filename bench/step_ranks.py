"""Compares steps on several ranks: starts a group of processes per system, lets them take turns, and prints a table."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloom
from hloom.ir.tools.printer import module_text
from llama_step import CONFIGURATIONS, sharded_text

PEER = str(Path(__file__).with_name("step_peer.py"))
PAUSE = 0.01  # seconds between looks at the folder
START_SECONDS = 900.0  # for compiling and the first step
NOT_OFFERED = "-"


@dataclass(frozen=True)
class System:
    """A row of the table: its name, that of the program in `step_peer.SYSTEMS`, and whether ranks are started here.
    `kind` is given where it is not that of the table.
    """

    name: str
    program: str
    starts_ranks: bool = False
    package: str = "jax"
    kind: str = ""


HLOOM = System("Hloom", "hloom", package="mpi4py")
JAX = System("JAX, virtual devices", "jax")
ALONE = (HLOOM, System("JAX", "jax"), System("torch, eager", "torch", package="torch"),
         System("torch, compiled", "torch-compiled", package="torch"))  # fmt: skip
BUCKETS = (System("Hloom, one by one", "hloom-single", package="mpi4py"),
           System("Hloom, by layer", "hloom-layer", package="mpi4py"),
           System("Hloom, scheduled", "hloom-schedule", package="mpi4py"),
           System("Hloom, flat parameters", "hloom-flat", package="mpi4py"))  # fmt: skip
WHOLE = System("Hloom, DP", "hloom", package="mpi4py", kind="dp")
TORCH = {"dp": "torch, DDP", "fsdp": "torch, FSDP2"}


def systems(kind: str, ranks: int, buckets: bool) -> list[System]:
    """Returns what is compared: with peers, or with other `buckets` of collectives."""
    if buckets:
        return [HLOOM, *BUCKETS, *([WHOLE] if kind != WHOLE.kind else [])]
    if ranks == 1:
        return list(ALONE)
    found = [HLOOM, JAX, System("JAX, gloo", "jax-gloo", starts_ranks=True)]
    if kind in TORCH:
        found.append(System(TORCH[kind], "torch", starts_ranks=True, package="torch"))
    return found


@dataclass
class Group:
    """The processes of one system, and what they said."""

    system: System
    folder: Path
    processes: list[subprocess.Popen[bytes]]
    ready: dict[str, float] = field(default_factory=dict[str, float])
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    problem: str = ""

    def note(self, name: str, limit: float) -> Any:
        """Returns a note of the processes, None if they end or take too long."""
        end = time.monotonic() + limit
        while not (self.folder / name).exists():
            if any(p.poll() not in (None, 0) for p in self.processes) or time.monotonic() > end:
                self.problem = "failed"
                print((self.folder / "log").read_text()[-800:], file=sys.stderr)
                return None
            time.sleep(PAUSE)
        return json.loads((self.folder / name).read_text())

    def run(self, number: int, count: int) -> None:
        """Runs steps and keeps their times."""
        if self.problem:
            return
        part = self.folder / "part-go"
        part.write_text(str(count))
        part.rename(self.folder / f"go{number}")
        found: dict[str, list[float]] = self.note(f"done{number}", START_SECONDS) or {}
        for name, times in found.items():
            self.times.setdefault(name, []).extend(times)

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def start(system: System, configuration: str, kind: str, ranks: int, folder: Path) -> Group:
    """Starts the processes of a system."""
    if importlib.util.find_spec(system.package) is None:
        return Group(system, folder, [], problem="not installed")
    words = [sys.executable, PEER, str(folder), system.program, configuration, kind, str(ranks)]
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "JAX_PLATFORMS": "cpu"}
    if system.program == "jax":
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    port = str(free_port())
    lists = [[*words, str(rank), port] for rank in range(ranks)] if system.starts_ranks else [words]
    with (folder / "log").open("wb") as log:
        started = [subprocess.Popen(w, env=environment, stdout=log, stderr=log) for w in lists]
    return Group(system, folder, started)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def measure_ranks(configuration: str, kind: str, ranks: int, rounds: int, steps: int, buckets: bool) -> bool:
    """Prints the table of one configuration, kind and number of ranks. Returns whether all losses agree."""
    begun = time.perf_counter()
    compared = systems(kind, ranks, buckets)
    texts = {k: program_text(configuration, k, ranks) for k in {s.kind or kind for s in compared}}
    print(f"\n{configuration}, {f'{kind.upper()}, {ranks} ranks' if ranks > 1 else '1 rank'}  "
          f"(lowered and partitioned in {time.perf_counter() - begun:.1f} s)", flush=True)  # fmt: skip
    with TemporaryDirectory(prefix="step-") as place:
        groups: list[Group] = []
        for number, system in enumerate(compared):
            folder = Path(place, str(number))
            folder.mkdir()
            (folder / "program.hlo").write_text(texts[system.kind or kind])
            group = start(system, configuration, system.kind or kind, ranks, folder)
            if not group.problem:
                group.ready = group.note("ready", START_SECONDS) or {}
            groups.append(group)
        try:
            for number in range(rounds):
                for group in groups:
                    group.run(number, steps)
        finally:
            for group in groups:
                group.stop()
        return report(groups)


def program_text(configuration: str, kind: str, ranks: int) -> str:
    """Returns the program of a device."""
    return module_text(hloom.partition(hloom.parse(sharded_text(CONFIGURATIONS[configuration], kind, ranks))).module)


def report(groups: list[Group]) -> bool:
    """Prints the rows, and returns whether the losses agree."""
    middle = {g.system.name: statistics.median(g.times["step"]) for g in groups if g.times}
    other = next((g.system.name for g in groups if g.system.program == "jax" or g.system == WHOLE), "")
    base = "DP" if other == WHOLE.name else "JAX"
    print(f"{'':22} {'step ms':>18} {f'/ {base}':>7} {'processor ms':>18} {'compile s':>10} {'loss':>10} "
          f"{'forecast MB':>12} {'arrays MB':>10} {'windows MB':>11}")  # fmt: skip
    for group in groups:
        if not group.times:
            print(f"{group.system.name:22} {group.problem:>18}")
            continue
        name, found = group.system.name, group.times["step"]
        ratio = f"{middle[name] / middle[other]:7.2f}" if other in middle else f"{NOT_OFFERED:>7}"
        processor, ready = shown(group.times["processor"]), group.ready
        memory = " ".join(f"{ready[name] / 1e6:{width}.1f}" if name in ready else f"{NOT_OFFERED:>{width}}"
                          for name, width in (("forecast", 12), ("arrays", 10), ("windows", 11)))  # fmt: skip
        print(f"{name:22} {shown(found):>18} {ratio} {processor:>18} {ready['compile']:10.2f} {ready['loss']:10.6f} "
              f"{memory}")  # fmt: skip
        if "matmuls" in group.times:
            print(f"{'matmuls of a rank':22} {shown(group.times['matmuls']):>18}")
    losses = [g.ready["loss"] for g in groups if g.ready]
    return max(losses) - min(losses) <= 1e-4 * max(map(abs, losses))


def shown(times: list[float]) -> str:
    """Returns the median and the least of some times, in ms."""
    return f"{statistics.median(times) * 1e3:8.1f} ({min(times) * 1e3:7.1f})"
