"""Runs command lines of `hloom`, in a folder of their own: in this process, which is quick, or in one of their own."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

from hloom.__main__ import main
from support.processes import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMED = str(EXAMPLES / "mlp_named.hlo")
_processes = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What a process left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without what a launcher or a user of Hloom may have set, and with the package.

    The backend and the processor stay, so that all tests can run with each. So does the cache of these tests, but each
    process makes its program anew: it has a variable of its own, by which it finds none that is kept. Ranks that wait
    in Open MPI leave their cores to other tests.
    """
    foreign = ("OMPI_", "PMI", "PRTE_", "HLOOM_")
    ours = ("HLOOM_BACKEND", "HLOOM_CACHE", "HLOOM_CPU")
    kept = {k: v for k, v in os.environ.items() if k in ours or not k.startswith(foreign)}
    number = f"{os.getpid()}.{next(_processes)}"
    added = {"PYTHONPATH": str(ROOT / ".import"), "HLOOM_TEST": number, "OMPI_MCA_mpi_yield_when_idle": "1"}
    return kept | added | variables


def process(*arguments: str | Path, cwd: Path, text: str | None = None, **variables: str) -> Outcome:
    """Runs the command line in a process of its own, for what a process is: its ranks, its streams, its imports.

    `text` is its standard input; `variables` are added to the environment.
    """
    done = subprocess.run(
        [sys.executable, "-m", "hloom", *map(str, arguments)],
        cwd=cwd, env=environment(**variables), input=text or "", capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def hloom(*arguments: str | Path, cwd: Path, text: str | None = None, **variables: str) -> Outcome:
    """As `process`, in this process: a second sooner. Warnings of Python count as printed."""
    out, err = _stream(), _stream()
    with (
        contextlib.chdir(cwd), mock.patch.dict(os.environ, environment(**variables), clear=True),
        mock.patch.multiple(sys, stdin=_stream(text or ""), stdout=out, stderr=err),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:  # of argparse
            code = stop.code if isinstance(stop.code, int) else 1
    return Outcome(code, _written(out), _written(err) + "".join(f"{w.message}\n" for w in warned))


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def have_mpi() -> bool:
    """Whether ranks can be started."""
    from hloom.runtime.ranks import launch
    from hloom.runtime.ranks.library import MpiMissing

    try:
        launch.find_mpiexec()
    except MpiMissing:
        return False
    return find_spec("mpi4py") is not None
