"""Scheduled programs on MPI ranks: the bits of the programs before, and the numbers of one device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import ROOT, environment, have_mpi

PROGRAM = Path(__file__).with_name("rank_schedules.py")
LAUNCHER = ROOT / "tests" / "support" / "on_ranks.py"
SEARCHED = f"{ROOT / '.import'}:{ROOT / 'tests'}"
EVERYTHING = {
    "all-reduce-to-reduce-scatter", "bucket", "carry-reduce-scatters", "combine-collectives",
    "hierarchical-collectives", "hoist-gathers", "memory-order", "overlap", "prefetch-gathers",
    "reassociate-all-reduces", "rematerialize", "rotate-loops", "schedule", "sink-all-reduces",
}  # fmt: skip


def outcome(kind: str, ranks: int, count: int, collectives: str) -> tuple[int, set[str]]:
    """How many programs ran on so many ranks, and the passes that changed any of them."""
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    variables = environment(PYTHONPATH=SEARCHED, HLOOM_COLLECTIVES=collectives)
    done = subprocess.run(
        [sys.executable, LAUNCHER, PROGRAM, str(ranks), kind, "0", str(count)],
        capture_output=True, text=True, env=variables, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    programs, *passes = done.stdout.split()
    return int(programs), set(passes)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_layered_models(ranks: int) -> None:
    programs, passes = outcome("layered", ranks, 1, "shared")
    assert programs == 1
    assert len(passes & EVERYTHING) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "collectives"), [(2, "shared"), (4, "shared"), (2, "mpi"), (4, "mpi")])
def test_many_layered_models(ranks: int, collectives: str) -> None:
    """Each pass changes some program."""
    programs, passes = outcome("layered", ranks, 80, collectives)
    assert programs == 80
    assert passes >= EVERYTHING


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_random_programs(ranks: int) -> None:
    programs, passes = outcome("random", ranks, 200, "shared")
    assert programs > 40
    assert {"schedule", "bucket", "overlap", "memory-order"} <= passes
