"""`hloom prove`: exit codes, its line and its JSON."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from pathlib import Path

import pytest
from hloom import load, partition
from hloom.report import progress
from support.command_line import NAMED, hloom

KEYS = {
    "program", "devices", "outcome", "outputs", "trials", "chance", "difference", "problem", "undefined", "uncovered",
    "origin", "shown", "unfinished", "up_to",
}  # fmt: skip

UNCOVERED = """HloModule m
ENTRY e { x = c64[2,1025] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = c64[2,1025] fft(x), fft_type=FFT, fft_length={1025} }"""


def test_a_right_program_is_equal(tmp_path: Path) -> None:
    done = hloom("prove", NAMED, cwd=tmp_path)
    assert (done.code, done.out) == (0, "equal: 2 outputs, 2 trials; wrong with probability <= 9e-22\n")


SORTED = """HloModule m
f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  y = f32[8] tanh(x)
  s = f32[8] sort(x), dimensions={0}, to_apply=f  ROOT t = (f32[8], f32[8]) tuple(y, s) }"""


def test_tested_only_is_another_word_and_code(tmp_path: Path) -> None:
    done = hloom("prove", "-", cwd=tmp_path, text=SORTED)
    assert done.code == 4
    assert done.out.startswith("agrees: 2 outputs, ")
    assert done.out.endswith("; tested only: output 1 (sort s)\n")
    done = hloom("prove", "-", "--json", "--trials", "1", cwd=tmp_path, text=SORTED)
    found = json.loads(done.out)
    assert done.code == 4
    assert (found["outcome"], found["trials"]) == ("agrees", 1)
    assert found["tested"] == [{"output": 1, "decision": "sort s"}]


def test_an_uncovered_op_is_named_with_its_place(tmp_path: Path) -> None:
    done = hloom("prove", "-", cwd=tmp_path, text=UNCOVERED)
    assert done.code == 3
    assert done.out.startswith("unproved: fft y of the original program (<stdin>:3): a transform of 1025")


def test_a_wrong_program_differs(tmp_path: Path) -> None:
    wrong = partition(load(NAMED))
    multiply = next(i for i in wrong.entry if i.opcode == "multiply")
    wrong.entry.replace_all_uses(multiply, multiply.operands[0])
    (tmp_path / "wrong.hlo").write_text(wrong.to_text())
    done = hloom("prove", NAMED, "wrong.hlo", "--json", cwd=tmp_path)
    found = json.loads(done.out)
    assert done.code == 1
    assert set(found) == KEYS | {"tested", "never_run"}
    assert found["outcome"] == "differs"
    assert found["difference"]["what"] == "another value"
    assert found["origin"]["name"] == "total"


def test_a_program_per_device_has_no_original(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    done = hloom("prove", "-", cwd=tmp_path, text=local)
    assert done.code == 2
    assert "hloom prove ORIGINAL LOCAL" in done.err


def test_the_work_of_another_partitioner(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    assert " multiply(" in local
    (tmp_path / "right.hlo").write_text(local)
    (tmp_path / "wrong.hlo").write_text(local.replace(" multiply(", " subtract("))
    done = hloom("prove", NAMED, "right.hlo", cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("equal: 2 outputs, 2 trials")
    assert hloom("prove", NAMED, "wrong.hlo", cwd=tmp_path).code == 1
    assert hloom("prove", NAMED, "right.hlo", "--devices", "4", cwd=tmp_path).code == 2


ENDLESS = """HloModule m
more { a = f32[] parameter(0)  ROOT r = pred[] compare(a, a), direction=EQ }
same { b = f32[] parameter(0)  ROOT s = f32[] copy(b) }
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  i = f32[] parameter(1)
  ROOT y = f32[] while(i), condition=more, body=same }"""


def test_a_proof_without_an_end_is_undecided(tmp_path: Path) -> None:
    done = hloom("prove", "-", "--timeout", "0.3", "--json", cwd=tmp_path, text=ENDLESS)
    found = json.loads(done.out)
    assert done.code == 3
    assert done.err == ""
    assert set(found) == KEYS | {"tested", "never_run"}
    assert (found["outcome"], found["trials"], found["outputs"]) == ("undecided", 0, 1)
    assert found["unfinished"]["seconds"] == 0.3
    assert found["unfinished"]["during"] == "trial 1: the original program"
    assert found["unfinished"]["running"][0] == "while y (<stdin>:5)"


def test_the_time_of_partitioning_counts(tmp_path: Path) -> None:
    done = hloom("prove", NAMED, "--timeout", "1e-9", cwd=tmp_path)
    assert done.code == 3
    assert done.out.startswith("undecided after 1e-09 s, in partitioning; 2 outputs not decided")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_time_that_is_none_is_refused(seconds: str, tmp_path: Path) -> None:
    done = hloom("prove", NAMED, "--timeout", seconds, cwd=tmp_path)
    assert done.code == 2
    assert f"'{seconds}' is not a positive number of seconds" in done.err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_terminals_alone(is_terminal: bool) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    screen, trial = Screen(), threading.Event()

    def words() -> str:
        trial.set()
        return "proving, trial 2 of 4"

    with contextlib.redirect_stderr(screen), progress.working(words, 0.0, 0.001):
        assert trial.wait(10) if is_terminal else not trial.wait(0.05)
    assert ("hloom: proving, trial 2 of 4, 0 s" in screen.getvalue()) is is_terminal
