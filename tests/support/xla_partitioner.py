"""XLA's own partitioning of a program, in a process of its own.

`XlaPartitioner` compiles annotated HLO text for virtual CPU devices and returns the program per device as it is right
after XLA's partitioner, before other passes fold constants and fuse, and the program right before. Annotations are HLO
shardings, which XLA's own propagation completes. XLA ends the process for some programs; the next program then gets a
new process.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from hloom.ir.graph.module import Module
from hloom.runtime.inputs.inputs import inputs_for_module
from support.compare import compare

Array = np.ndarray[Any, Any]

DEVICES = 12
_PASS = "spmd-partitioning"
_PADDING = (math.nan, 100.0)  # of inputs: maxima of XLA's collectives may drop a NaN
_DISAGREE = "hold different values"  # what devices that have the same tile should not
_PATIENCE = 60.0  # seconds for one program


@dataclass(frozen=True)
class Run:
    """Global inputs of a run, and what their padding holds where they are floats."""

    inputs: list[Array]
    padding: float = math.nan


class XlaRefusal(Exception):
    """XLA did not compile or run a program, or its process ended."""


class XlaPartitioner:
    """A process with XLA, for up to DEVICES devices. Leave it with `close` or as a context manager."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Any = None

    def partition(self, text: str, devices: int) -> tuple[str, str]:
        """Returns the texts of the simplified program with all its shardings, and of the program per device that XLA
        makes of it. Raises XlaRefusal.
        """
        return self._ask("partition", text, devices)

    def run(self, text: str, runs: Sequence[Run], shapes: Sequence[tuple[int, ...]], devices: int) -> list[list[Array]]:
        """Runs what XLA partitioned (or left whole, for one device) on global arrays, once or several times; the
        results have these global shapes. Raises XlaRefusal.
        """
        return self._ask("run", text, list(runs), list(shapes), devices)

    def close(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = None

    def __enter__(self) -> XlaPartitioner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, *request: Any) -> Any:
        if self._process is None:
            self._connection, other = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        try:
            self._connection.send(request)
            if not self._connection.poll(_PATIENCE):
                raise EOFError
            is_fine, answer = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            raise XlaRefusal("XLA's process ended, or took too long") from None
        if not is_fine:
            raise XlaRefusal(answer)
        return answer


def numbers_differ(module: Module, xla: XlaPartitioner) -> dict[int, str]:
    """How XLA's results on all devices differ from those on one device, by result. Raises XlaRefusal."""
    shapes = [leaf.dims for leaf in module.entry.root.shape.leaves()]
    runs = [Run(inputs_for_module(module, seed=seed), padding) for seed, padding in enumerate(_PADDING)]
    beyond = [x + x.dtype.type(9) if x.dtype.kind == "i" else x for x in runs[0].inputs]  # indices beyond their range
    runs.append(Run(beyond))
    found: dict[int, str] = {}
    expected = xla.run(module.to_text(), runs, shapes, 1)
    try:
        results = xla.run(module.to_text(), runs, shapes, module.num_partitions)
    except XlaRefusal as error:
        if _DISAGREE not in str(error):
            raise
        return dict.fromkeys(range(len(shapes)), str(error))
    for result, wanted in zip(results, expected, strict=True):
        found |= {d.output: str(d) for d in compare(result, wanted).differences}
    return found


def _serve(connection: Any) -> None:
    """Answers requests until the other side closes."""
    with tempfile.TemporaryDirectory(prefix="hloom-xla-") as folder:
        os.environ["XLA_FLAGS"] = " ".join([
            f"--xla_force_host_platform_device_count={DEVICES}", f"--xla_dump_to={folder}", "--xla_dump_hlo_as_text",
            f"--xla_dump_hlo_pass_re={_PASS}", "--xla_dump_large_constants",
        ])  # fmt: skip
        os.environ |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where XLA prints its stack before it ends the process
        server = _Server(Path(folder))
        while True:
            try:
                kind, *arguments = connection.recv()
            except EOFError:
                return
            try:
                answer = (True, getattr(server, kind)(*arguments))
            except Exception as error:  # jaxlib raises several kinds
                answer = (False, str(error).partition("\n")[0] or type(error).__name__)
            connection.send(answer)


class _Server:
    """Compiles programs, and remembers the last ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._compiled: dict[tuple[str, int], tuple[Any, tuple[str, ...]]] = {}

    def partition(self, text: str, devices: int) -> tuple[str, ...]:
        return self._compile(text, devices)[1]

    def run(self, text: str, runs: list[Run], shapes: list[tuple[int, ...]], devices: int) -> list[list[Array]]:
        from support.xla_runner import run_partitioned

        program = self._compile(text, devices)[0]
        if devices == 1:
            return [program.run([run.inputs])[0] for run in runs]
        return [run_partitioned(program, run.inputs, shapes, run.padding) for run in runs]

    def _compile(self, text: str, devices: int) -> tuple[Any, tuple[str, ...]]:
        """The executable, and the texts that XLA's partitioner was given and made."""
        from support.xla_runner import compile_text

        if (text, devices) not in self._compiled:
            for old in self._folder.iterdir():
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            program = compile_text(text, partitions=devices)
            paths = [path for place in ("before", "after") for path in self._folder.glob(f"*{place}_{_PASS}.*txt")]
            self._compiled[text, devices] = program, tuple(path.read_text() for path in paths)
            self._compiled = dict(list(self._compiled.items())[-2:])
        return self._compiled[text, devices]
