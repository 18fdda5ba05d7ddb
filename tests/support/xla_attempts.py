"""Whether XLA survives a program: it is compiled and run in a process of its own, which may end as it likes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence

from support.xla_runner import Array, compile_text


def survives(text: str, arguments: Sequence[Sequence[Array]]) -> bool:
    """Whether a program of as many replicas as there are arguments comes to its end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jax", "pytest", __name__])  # imported once, for all that are forked off
    process = context.Process(target=_attempt, args=(text, arguments))
    process.start()
    process.join(60)
    process.kill()
    return process.exitcode == 0


def _attempt(text: str, arguments: Sequence[Sequence[Array]]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    compile_text(text, replicas=len(arguments)).run(arguments)
