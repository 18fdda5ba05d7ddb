"""Kills a process that writes checkpoints at random points: `python kill_writers.py FOLDER TIMES`.

It forks, so it runs in a process without the threads of other tests.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
from hloom import checkpoint, parse, partition
from hloom.ir.graph.module import Module
from hloom.runtime.checkpoint.step_folder import remove_hidden, steps_in

PROGRAM = """HloModule state
ENTRY e { ROOT w = f32[64,512] parameter(0), sharding={devices=[4,1]<=[4]} }
"""


def value(step: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.full((64, 512), step, np.float32)


def killed_after(steps: int, seconds: float, folder: Path, local: Module, first: int) -> int:
    """Starts a process that writes one step after the other from `first` on, and kills it.

    The kill comes `seconds` after `steps` of them are complete, so a slow machine writes as many as a fast one.
    Returns the newest step.
    """
    child = os.fork()
    if child == 0:
        try:
            for step in range(first, first + 10000):
                checkpoint.save(folder, local, [value(step)], step=step, keep=2)
        finally:
            os._exit(1)
    while steps and max(steps_in(folder), default=-1) < first + steps - 1:
        time.sleep(0.0002)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    newest = steps_in(folder)
    for step in newest:
        assert checkpoint.load(folder, local, step=step).arrays[0].tobytes() == value(step).tobytes()
    return newest[0] if newest else -1


def main(folder: Path, times: int) -> None:
    draw, local = random.Random(times), partition(parse(PROGRAM))
    start = time.perf_counter()
    for step in range(4):
        checkpoint.save(folder, local, [value(step)], step=step)
    duration = (time.perf_counter() - start) / 4
    newest, hidden, kills = 3, 0, 0
    while kills < times or (not hidden and kills < 20 * times):  # some kills have to meet a folder half written
        steps = draw.randrange(5)
        found = killed_after(steps, draw.uniform(0, 1.5) * duration, folder, local, newest + 1)
        assert found >= newest + steps
        newest, kills = found, kills + 1
        hidden += sum(name.startswith(".") for name in os.listdir(folder))
        if draw.random() < 0.5:  # a job that starts removes them, another writer meets them
            remove_hidden(folder)
    assert hidden


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
