"""What a person sees first: lines that fit a terminal of 80 and of 120 columns, the result in few lines, remarks last.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import sys
import termios
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hloom.__main__ import main
from hloom.cli.commands import COMMANDS
from hloom.driver.training.metrics import StepProgress, StepRecord
from hloom.report.progress import estimate, keep, working
from support.command_line import EXAMPLES, ROOT

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PRINTS_PROGRAMS = {"partition", "opt", "show", "isolate"}  # whose lines are those of the programs
_LONG = r"--ranks|--json|calibrate| > |^eval|from-jax"
_STEP = EXAMPLES / "transformer_train.hlo"


@dataclass
class Screen:
    """What a terminal got, as it was written."""

    text: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines that stay, without progress."""
        plain = _STYLE.sub("", self.text.replace("\r\n", "\n"))
        return [re.split(r"\r|\x1b\[K", line)[-1] for line in plain.removesuffix("\n").split("\n")]


@contextmanager
def terminal(width: int) -> Generator[Screen]:
    """Makes standard output and standard error a terminal of this width; after the block its screen is there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    read, screen = bytearray(), Screen()

    def collect() -> None:
        with suppress(OSError):  # the other end is closed
            while found := os.read(ours, 1 << 16):
                read.extend(found)

    reader = threading.Thread(target=collect)
    reader.start()
    with open(theirs, "w", encoding="utf-8") as stream, redirect_stdout(stream), redirect_stderr(stream):
        yield screen
    reader.join()
    os.close(ours)
    screen.text = read.decode()


def _shown(width: int, *arguments: str) -> list[str]:
    with terminal(width) as screen:
        assert main(list(arguments)) == 0
    return screen.lines


@pytest.mark.parametrize("command", [
    "comm", pytest.param("schedule --machine tpu-v4", marks=pytest.mark.slow), "shard",
])  # fmt: skip
def test_lines_fit(command: str) -> None:
    name, *options = command.split()
    lines = _shown(80, name, str(_STEP), *options)
    assert [line for line in lines if len(line) > 80] == []
    assert any("remark: " in line for line in lines) or name == "shard"


EVERY = [(name, example) for name, command in COMMANDS.items() for example in command.examples
         if name not in _PRINTS_PROGRAMS and not re.search(_LONG, example)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("example", [e for _, e in EVERY], ids=[e for _, e in EVERY])
def test_every_example_fits(example: str, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    lines = _shown(width, *shlex.split(example)[1:])
    assert [line for line in lines if len(line) > width] == []


def test_the_dearest_remark_is_told_and_others_are_counted() -> None:
    lines = _shown(120, "forecast", str(_STEP), "--machine", "h100")
    first = next(n for n, line in enumerate(lines) if ": remark: " in line)
    told = "\n".join(lines[first:])
    assert told.count(": remark: ") == 1
    counted = [int(n) for n in re.findall(r"(\d+)\s+more (?:like it|remarks: --remarks all)", told)]
    assert lines[0].startswith("jit_train_step: ")
    assert len(lines) - first <= 8
    whole = _shown(120, "forecast", str(_STEP), "--machine", "h100", "--remarks", "all")
    assert "\n".join(whole).count(": remark: ") == 1 + sum(counted) > 8


def test_a_narrow_terminal_shows_shardings_of_many_values_once() -> None:
    lines = _shown(80, "shard", str(_STEP))
    rows = lines[1 : lines.index("")]
    assert lines[0].split()[:3] == ["value", "shape", "sharding"]
    assert len(rows) < 90
    more = sum(int(count) for row in rows for count in re.findall(r"\(\+(\d+)\)", row))
    assert len(rows) + more == int(re.findall(r"^(\d+) values: ", "\n".join(lines), re.MULTILINE)[0]) > 1000
    parameters = {re.sub(r"\d", "", name) for name in re.findall(r"%(state__[\w.]+) = ", _STEP.read_text())}
    assert sum(row.startswith("state__") for row in rows) == len(parameters)


def test_many_outputs_are_not_listed() -> None:
    lines = _shown(80, "run", str(_STEP), "--backend", "reference", "--remarks", "none")
    assert len(lines) == 15
    assert lines[0] == "jit_train_step: 8 simulated devices; 5 all-gather, 33 all-reduce; 137348 bytes"
    assert lines[-1] == "53 more outputs: --out DIR writes all, --json prints all"


def test_what_took_long_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the last time, and by the size of the program."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("HLOOM_CACHE", str(cache))
    small, large = (["comm", str(tmp_path / name)] for name in ("small.hlo", "large.hlo"))
    Path(small[1]).write_text("x" * 100)
    Path(large[1]).write_text("x" * 300)
    assert estimate("partitioning", small) is None
    keep("partitioning", small, 4.0)
    assert [estimate("partitioning", command) for command in (small, large)] == [4.0, 12.0]
    assert estimate("scheduling", small) is None
    Path(large[1]).write_text("x" * 500)
    assert estimate("partitioning", large) is None  # times need not grow like sizes
    keep("reading a.hlo", small, 1.0)
    assert estimate("reading b.hlo", small) == 1.0
    monkeypatch.setenv("HLOOM_CACHE", "")
    assert estimate("partitioning", small) is None


def test_what_is_left_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("HLOOM_CACHE", str(cache))
    keep("waiting", sys.argv[1:], 60.0)
    with terminal(80) as screen, working("waiting", 0.0, 0.02):
        time.sleep(0.2)
    assert "hloom: waiting, 0 s, about 60 s left" in screen.text
    now = estimate("waiting", sys.argv[1:])
    assert now is not None
    assert 0.2 <= now < 60
    keep("proving", sys.argv[1:], 60.0)
    with terminal(80) as screen, working(lambda: "proving, trial 1", 0.0, 0.02, "proving"):
        time.sleep(0.1)
    assert "hloom: proving, trial 1, 0 s, about 60 s left" in screen.text


def test_steps_say_how_long_the_others_will_take() -> None:
    with terminal(100) as screen:
        progress = StepProgress(1000)
        for step in range(2):
            progress.show(StepRecord(step, 0.25, {"loss": 2.5}))
            time.sleep(0.25)
    ((one, nothing), (two, left)) = re.findall(r"step (\d) of 1000, loss 2.5, 250 ms(?:, about (\d+) s left)?",
                                               screen.text)  # fmt: skip
    assert (one, nothing, two) == ("1", "", "2")
    assert 249 <= int(left) <= 998  # on a machine that does other work, too


def test_the_readme_begins_with_few_lines() -> None:
    """The command is the README's first; another test runs it and compares what stands below."""
    text = (ROOT / "README.md").read_text()
    shown = re.findall(r"```sh\n.* --check\n```\n\n```text\n(.*?)```", text, re.DOTALL)[0].splitlines()
    assert len(shown) <= 15
    assert "check passed" in shown[:6]
