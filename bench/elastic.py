"""Measures recovery and checkpoints: `python bench/elastic.py [recovery] [write] [beside]`.

`recovery`: a rank of `examples/mlp_train.hlo` (or the transformer) dies or stops. Seconds from the last step before it
until another rank knows, for the ranks to close up, for the program of a smaller mesh, for the state, to start, and to
the end of the first step that is run again; and whether losses are those of a run without a failure. Where a rank dies
at once, the program of the smaller mesh is not prepared yet. `write`: a gigabyte of state and `dd` with fsync from
memory, in turns. `beside`: products while a checkpoint is written, and while none is.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hloom
import numpy as np

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CASES = (  # with the seconds in all of a prototype that did the same by hand, where it was measured
    ("mlp, killed, fold", "mlp_train.hlo", "0.10", ("--on-failure", "fold", "--fault", "1,11,kill")),
    ("mlp, killed, a spare rank", "mlp_train.hlo", "-",
     ("--on-failure", "fold", "--fault", "1,11,kill", "--spares", "1")),
    ("mlp, killed, shrink", "mlp_train.hlo", "0.50", ("--on-failure", "shrink", "--fault", "1,1501,kill")),
    ("mlp, killed at once, shrink", "mlp_train.hlo", "0.50", ("--on-failure", "shrink", "--fault", "1,11,kill")),
    ("mlp, stopped, fold", "mlp_train.hlo", "1.26", ("--on-failure", "fold", "--fault", "1,11,stop")),
    ("transformer, killed, fold", "transformer_train.hlo", "-", ("--on-failure", "fold", "--fault", "1,100,kill")),
    ("transformer, killed, shrink", "transformer_train.hlo", "3.48",
     ("--on-failure", "shrink", "--fault", "1,2000,kill")),
    ("transformer, killed at once, shrink", "transformer_train.hlo", "3.48",
     ("--on-failure", "shrink", "--fault", "1,100,kill")),
    ("mlp, killed, restart", "mlp_train.hlo", "-", ("--on-failure", "restart", "--fault", "1,11,kill")),
)
COLLECTIVES = {"mlp_train.hlo": 2, "transformer_train.hlo": 19}  # that a rank of four starts in a step
STATE = "HloModule s\nENTRY e {{ ROOT w = f32[{n},262144] parameter(0), sharding={{devices=[4,1]<=[4]}} }}\n"


def train(file: Path, folder: Path, steps: int, *more: str) -> tuple[list[tuple[float, str]], list[dict[str, Any]]]:
    """Trains so many steps; returns the lines of standard error with their times, and the records of steps."""
    command = [sys.executable, "-m", "hloom", "train", str(file), "--steps", str(steps), "--remarks", "none"]
    command += ["--metrics", str(folder / "m.jsonl"), *more]
    lines: list[tuple[float, str]] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as job:
        assert job.stderr is not None
        lines += [(time.time(), line) for line in job.stderr]
    assert job.returncode == 0, lines
    return lines, [json.loads(line) for line in (folder / "m.jsonl").read_text().splitlines()]


def recovery() -> None:
    print(f"{'case':35} {'detect':>7} {'ranks':>6} {'program':>8} {'state':>6} {'start':>6} {'step':>6} {'in all':>7} "
          f"{'prototype':>9}  losses of the run without a failure")  # fmt: skip
    for name, example, prototype, given in CASES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            lost = ("--ranks", "4", "--checkpoint", str(folder / "steps"), "--every", "1", "--timeout", "20")
            steps = 3 + max(5, int(given[3].split(",")[1]) // COLLECTIVES[example])
            lines, records = train(EXAMPLES / example, folder, steps, *lost, *given)
            _, plain = train(EXAMPLES / example, folder, steps)
            report, text = next((at, line) for at, line in lines if "goes on at step" in line)
            first = int(text.split("goes on at step ")[1].split(",")[0])
            before = max((r["at"] for r in records if r["step"] < first), default=records[0]["at"])
            after = records[first]["at"]
            found = re.search(r"after ([\d.]+) s \((.*)\)", text)
            parts = {k: float(v) for k, v in (p.split() for p in found[2].split(", "))} if found else {}
            shown = [f"{parts[k]:.2f}" if k in parts else "-" for k in ("ranks", "program", "state", "start")]
            detect = report - before - (float(found[1]) if found else 0.0)
            same = [a["loss"] == b["loss"] for a, b in zip(records, plain, strict=True)]
            said = "all equal" if all(same) else f"equal until step {same.index(False)}"
            widths = "".join(text.rjust(width) for text, width in zip(shown, (7, 9, 7, 7)))
            print(f"{name:35} {detect:7.2f}{widths} {after - report:6.2f} {after - before:7.2f} {prototype:>9}  {said}",
                  flush=True)  # fmt: skip


def write(size: int = 1024, times: int = 5) -> None:
    np.ones((4 * size, 262144), np.float32)  # a virtual machine's memory is slow when it is first touched
    local = hloom.partition(hloom.parse(STATE.format(n=size)))
    values = np.random.default_rng(0).random((size, 262144), dtype=np.float32)
    seconds: dict[str, list[float]] = {"save": [], "dd": []}
    with tempfile.TemporaryDirectory(dir=ROOT) as temporary, tempfile.NamedTemporaryFile(dir="/dev/shm") as source:
        values.tofile(source.name)
        for _ in range(times):
            start = time.perf_counter()
            hloom.checkpoint.save(Path(temporary, "steps"), local, [values])
            seconds["save"].append(time.perf_counter() - start)
            shutil.rmtree(Path(temporary, "steps"))
            target = Path(temporary, "dd")
            start = time.perf_counter()
            command = ["dd", f"if={source.name}", f"of={target}", "bs=1M", "conv=fsync"]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            seconds["dd"].append(time.perf_counter() - start)
            target.unlink()
    rates = {name: values.nbytes / 1e6 / statistics.median(found) for name, found in seconds.items()}
    pairs = sorted(dd / save for save, dd in zip(seconds["save"], seconds["dd"], strict=True))
    print(f"{values.nbytes / 1e6:.0f} MB, median of {times}: save {rates['save']:.0f} MB/s, dd with fsync "
          f"{rates['dd']:.0f} MB/s, {rates['save'] / rates['dd']:.2f} of it; by pairs "
          f"{pairs[0]:.2f} to {pairs[-1]:.2f}")  # fmt: skip


def beside(size: int = 1024, times: int = 3) -> None:
    """Products in a loop, with and without a checkpoint written by a thread, in turns."""
    np.ones((4 * size, 262144), np.float32)
    local = hloom.partition(hloom.parse(STATE.format(n=size)))
    values = np.random.default_rng(0).random((size, 262144), dtype=np.float32)
    a = np.ones((1024, 1024), np.float32)
    found: dict[str, list[float]] = {"write": [], "alone": [], "beside": []}

    def timed(name: str, action: Callable[[], object]) -> None:
        start = time.perf_counter()
        action()
        found[name].append(time.perf_counter() - start)

    def work(count: int) -> None:
        for _ in range(count):
            np.matmul(a, a)

    with tempfile.TemporaryDirectory(dir=ROOT) as temporary:
        for number in range(times):
            save = partial(hloom.checkpoint.save, Path(temporary), local, [values], number, keep=1)
            timed("write", save)
            products = partial(work, 2 + int(found["write"][0] / 0.02))  # which take longer than the write
            timed("alone", products)
            thread = threading.Thread(target=save)
            thread.start()
            timed("beside", products)
            thread.join()
    write, alone, both = (statistics.median(found[name]) for name in ("write", "alone", "beside"))
    print(f"{values.nbytes / 1e6:.0f} MB, median of {times}: work {alone:.2f} s alone, {both:.2f} s beside a write of "
          f"{write:.2f} s, slower by {(both - alone) / write:.2f} of it")  # fmt: skip


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["recovery", "write", "beside"]
    for part in chosen:
        {"recovery": recovery, "write": write, "beside": beside}[part]()
