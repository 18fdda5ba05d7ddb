"""A second run of a program begins with what the first one made, and does the same in every other way."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from hloom.__main__ import main
from hloom.driver.compile import compiled
from hloom.ir import disk_cache
from hloom.ir.graph import keeping
from hloom.passes.fusion.fuse import FusionPass
from support.calls import calls
from support.command_line import EXAMPLES, have_mpi, hloom, process

REPEATED = """HloModule m, num_partitions=4
ENTRY e { x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}  w = f32[64,64] parameter(1), sharding={replicated}
  y = f32[64,64] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] add(y, x), sharding={replicated} }"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv("HLOOM_CACHE", str(place))
    return place


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return Path(shutil.copy(EXAMPLES / "mlp_named.hlo", tmp_path / "mlp.hlo"))


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob(f"*{keeping.SUFFIX}"))


def test_the_second_run_is_the_first(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "repeated.hlo"
    file.write_text(REPEATED)
    command = ["run", str(file), "--links", "1us/1GB", "--backend", "reference"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert len(files(cache)) == 1
    with calls(compiled) as made:
        assert main(command) == 0
        assert capsys.readouterr() == first
        assert main([*command, "--seed", "3", "--json", "--out", str(tmp_path / "out")]) == 0
    assert made == []
    assert (tmp_path / "out").is_dir()
    assert '"outputs"' in capsys.readouterr().out


def test_what_is_fused_is_kept(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "repeated.hlo"
    file.write_text(REPEATED)
    command = ["run", str(file), "--backend", "native"]
    assert main(command) == 0
    first = capsys.readouterr()
    with calls(FusionPass.run) as fused:
        assert main(command) == 0
    assert fused == []
    assert capsys.readouterr() == first


def test_checks_run_on_what_is_kept(
    cache: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(program), "--check"]) == 0
    with calls(compiled) as made:
        assert main(["run", str(program), "--check", "--seeds", "2"]) == 0
    assert made == []
    assert capsys.readouterr().out.count("check passed") == 2


def test_remarks_that_are_errors_stay_errors(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "transformer_scan_train.hlo").read_text()
    file = tmp_path / "t.hlo"
    file.write_text(text)
    assert main(["run", str(file), "--machine", "h100", "--backend", "reference"]) == 0
    shown = capsys.readouterr().err
    assert "[work]" in shown
    assert main(["run", str(file), "--machine", "h100", "--backend", "reference", "--werror=work"]) == 65
    assert "error: dot" in capsys.readouterr().err


def test_all_that_decides_is_in_the_key(cache: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = program.with_name("ours.toml")
    command = ["run", str(program), "--backend", "reference"]

    def kept_after(*more: str) -> int:
        assert main([*command, *more]) == 0
        return len(files(cache))

    assert [kept_after(), kept_after()] == [1, 1]
    assert kept_after("--mesh", "x=2,y=2") == 2
    shutil.copy(Path(keeping.__file__).parents[2] / "cost" / "machines" / "h100.toml", machine)
    assert [kept_after("--machine", str(machine)), kept_after("--machine", str(machine))] == [3, 3]
    machine.write_text(machine.read_text().replace('"3000 GB/s"', '"2000 GB/s"'))
    assert kept_after("--machine", str(machine)) == 4
    with monkeypatch.context() as other:
        other.setenv("HLOOM_CPU", "-avx512f")
        assert kept_after() == 5
    with monkeypatch.context() as other:
        other.setattr(keeping, "_sources", lambda: iter(["another version"]))
        assert kept_after() == 6
    program.write_text(program.read_text().replace("tanh(xw)", "negate(xw)"))
    assert kept_after() == 7


def test_what_cannot_be_kept_is_made(
    cache: Path, program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = hloom("run", "-", cwd=program.parent, text=program.read_text(), HLOOM_CACHE=str(cache))
    assert done.code == 0
    assert files(cache) == []
    assert main(["bench", str(program), "--repeat", "1"]) == 0
    assert files(cache) == []
    monkeypatch.setenv("HLOOM_CACHE", "")
    assert main(["run", str(program)]) == 0
    assert files(cache) == []
    monkeypatch.setenv("HLOOM_CACHE", str(program / "no folder"))
    assert main(["run", str(program)]) == 0
    program.write_text("HloModule broken")
    monkeypatch.setenv("HLOOM_CACHE", str(cache))
    assert main(["run", str(program)]) == 65
    assert files(cache) == []


def test_damage_is_made_anew(cache: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(program)]) == 0
    (file,) = files(cache)
    whole, first = file.read_bytes(), capsys.readouterr()
    file.write_bytes(whole[:-100])
    assert main(["run", str(program)]) == 0
    assert capsys.readouterr() == first
    assert file.read_bytes() == whole


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_a_planted_program_runs_no_code(cache: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(program)]) == 0
    (file,) = files(cache)
    first, marker = capsys.readouterr(), program.with_name("executed")
    bad = pickle.dumps(Planted(marker))
    for planted in (bad, pickle.dumps((bad, pickle.dumps([]))), pickle.dumps((pickle.dumps(1), bad))):
        file.write_bytes(hashlib.sha256(planted).digest() + planted)
        assert main(["run", str(program)]) == 0
        assert capsys.readouterr() == first
        assert not marker.exists()


def test_a_folder_of_all_is_named_once(cache: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert main(["run", str(program)]) == 0
    assert capsys.readouterr().err.count("others can write to it") == 1
    assert list(cache.iterdir()) == []


def test_old_programs_make_room(cache: Path) -> None:
    for number in range(4):
        disk_cache.write_kept((str(number),), bytes(68), cache, ".job")
        os.utime(max(cache.iterdir(), key=lambda p: p.stat().st_mtime_ns), ns=(number, number))
    disk_cache.prune(cache, ".job", 250)
    assert [disk_cache.read_kept((str(n),), cache, ".job") is not None for n in range(4)] == [False, False, True, True]


@pytest.mark.skipif(not have_mpi(), reason="no MPI")
def test_ranks_begin_with_what_is_kept(cache: Path, program: Path) -> None:
    command = ("run", str(program), "--ranks", "2")
    same = {"HLOOM_CACHE": str(cache), "HLOOM_TEST": "one"}  # for both, which else make programs of their own
    first, second = (process(*command, cwd=program.parent, **same) for _ in range(2))
    assert (second.code, second.out) == (0, first.out)
    assert len(files(cache)) == 1
