"""`hloom doctor`: what is there, and what is missing for what."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from support.command_line import have_mpi, hloom


def test_json_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "a.o").write_bytes(b"1234567")
    done = hloom("doctor", "--json", cwd=tmp_path, HLOOM_CACHE=str(tmp_path / "cache"))
    assert done.code == 0, done.err
    said = json.loads(done.out)
    found = {f["name"]: f for f in said["findings"]}
    assert found["JAX"]["ok"] == (find_spec("jax") is not None)
    assert found["MPI"]["ok"] == have_mpi()
    assert found["cache"]["found"] == f"1 files, 7 B in {tmp_path / 'cache'}"
    assert said["environment"]["HLOOM_CACHE"] == str(tmp_path / "cache")
    assert all(f["ok"] or f["help"] for f in said["findings"])


def test_what_is_missing_comes_last_with_its_help(tmp_path: Path) -> None:
    done = hloom("doctor", cwd=tmp_path, HLOOM_CACHE="", HLOOM_CPU="-fma", HLOOM_MPIEXEC="nowhere/mpiexec")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("hloom ")
    states = [line.split("  ")[1:] for line in lines if "missing" in line]
    assert len(states) >= 3
    assert "  help: cache: each run compiles anew: HLOOM_CACHE names a folder" in lines
    assert any(line.startswith("  help: MPI: ") and "nowhere/mpiexec" in line for line in lines)
    assert any(line.startswith("  help: native code: programs run op by op in numpy") for line in lines)
