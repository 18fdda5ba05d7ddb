"""`hloom run --collectives`: how ranks of one node communicate."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import NAMED, have_mpi, hloom, process


def test_ways_to_communicate_have_names(tmp_path: Path) -> None:
    done = hloom("run", NAMED, "--ranks", "2", cwd=tmp_path, HLOOM_COLLECTIVES="tcp")
    assert (done.code, done.err) == (65, "hloom: error: HLOOM_COLLECTIVES=tcp is none of auto, shared, mpi\n")
    assert hloom("run", NAMED, "--ranks", "2", "--collectives", "tcp", cwd=tmp_path).code == 2


@pytest.mark.slow
@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
@pytest.mark.parametrize("way", ["shared", "mpi"])
def test_ranks_communicate_as_demanded(way: str, tmp_path: Path) -> None:
    done = process("run", NAMED, "--ranks", "2", "--collectives", way, "--check", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "check passed"
