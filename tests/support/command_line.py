"""Starting `hloom` as a user does: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMED = str(EXAMPLES / "mlp_named.hlo")


@dataclass(frozen=True)
class Outcome:
    """What a process left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without what a launcher or a user of Hloom may have set, and with the package."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE_", "HLOOM_"))}
    return kept | {"PYTHONPATH": str(ROOT / ".import")} | variables


def hloom(*arguments: str | Path, cwd: Path, text: str | None = None, **variables: str) -> Outcome:
    """Runs the command line; `text` is its standard input, `variables` are added to the environment."""
    done = subprocess.run(
        [sys.executable, "-m", "hloom", *map(str, arguments)],
        cwd=cwd, env=environment(**variables), input=text or "", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def have_mpi() -> bool:
    """Whether ranks can be started."""
    from hloom.runtime.ranks import launch
    from hloom.runtime.ranks.library import MpiMissing

    try:
        launch.find_mpiexec()
    except MpiMissing:
        return False
    return find_spec("mpi4py") is not None
