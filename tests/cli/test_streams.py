"""What users and machines do to the streams and files of a command: one line, an exit code, never "please report"."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hloom.__main__ import main
from support.command_line import EXAMPLES, NAMED, Outcome, environment, hloom
from support.processes import PATIENCE, needs_proc, wait_for_state

FULL = Path("/dev/full")
full_disk = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


def shell(command: str, cwd: Path, **variables: str) -> Outcome:
    """Runs a line of shell in which `$hloom` is the command line and `$F` a program."""
    line = command.replace("$hloom", f"'{sys.executable}' -m hloom").replace("$F", f"'{NAMED}'")
    done = subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=environment(**variables), capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert not list(cwd.glob("hloom-reproducer*")), done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


REFUSED = "hloom: error: standard output cannot be written: No space left on device\n"


@full_disk
@pytest.mark.parametrize("command", ["run $F --check", pytest.param("--help", marks=pytest.mark.slow), "run --help"])
def test_standard_output_on_a_full_disk(command: str, tmp_path: Path) -> None:
    done = shell(f"$hloom {command} > /dev/full", tmp_path)
    assert (done.code, done.err) == (74, REFUSED)


@full_disk
@pytest.mark.parametrize("command", ["verify", "partition", "shard", "comm"])
def test_output_of_commands_on_a_full_disk(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with FULL.open("w") as full, contextlib.redirect_stdout(full):
        assert main([command, NAMED]) == 74
    assert capsys.readouterr().err == REFUSED


@full_disk
def test_standard_error_on_a_full_disk(tmp_path: Path) -> None:
    assert shell("$hloom verify none.hlo 2> /dev/full", tmp_path).code == 65
    assert shell("$hloom verify $F > /dev/full 2> /dev/full", tmp_path).code == 74


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("$hloom verify $F >&-", 74, "hloom: error: standard output is closed\n"),
        ("$hloom verify none.hlo 2>&-", 65, ""),
        ("$hloom verify - <&-", 65, "the text is empty"),
        ("$hloom run - --ranks 2 <&-", 65, "the text is empty"),
        ("$hloom verify none.hlo 2>&1 >&- | true; exit ${PIPESTATUS[0]}", 74, ""),
        ("ulimit -f 0; $hloom partition $F > out", 74, "standard output cannot be written: File too large"),
    ],
)
def test_streams_and_files(command: str, code: int, message: str, tmp_path: Path) -> None:
    done = shell(command, tmp_path)
    assert done.code == code, done.err
    assert message in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["verify", "."], 65, "hloom: error: . cannot be read: Is a directory\n"
                               "  help: . is a folder: name a file in it\n"),
        (["verify", ""], 65, "hloom: error: '' cannot be read: "),
        (["shard", NAMED, "--strategy", "."], 65, "hloom: error: . cannot be read: Is a directory\n"
                                                "  help: . is a folder: name a file in it\n"),
        (["picture", "f32[8]", "{devices=[100000000]<=[100000000]}"], 65, "too many for a picture"),
        (["run", NAMED, "--ranks", "²"], 2, "'²' is not a number of at least 1"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = hloom(*arguments, cwd=tmp_path)
    assert done.code == code, done.err
    assert message in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_output_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    name = "\u00fc.hlo"
    (tmp_path / name).write_bytes(Path(NAMED).read_bytes())
    done = shell(f"$hloom explain {name} xw", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert f"through xw ({name}:24:3)" in done.out


def test_readers_that_have_seen_enough(tmp_path: Path) -> None:
    big = EXAMPLES / "transformer_train.hlo"
    done = shell(f"$hloom show '{big}' | head -1 | wc -l; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.out.split(), done.err) == (["1", "0"], "")
    # Whoever closes standard error does not change the verdict.
    assert shell("{ $hloom verify none.hlo 2>&3 3>&-; echo $? >&4; } 3>&1 4>code | true", tmp_path).code == 0
    assert (tmp_path / "code").read_text() == "65\n"


@needs_proc
def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C while the program comes from a pipe that has no end yet.

    A signal between the opening and the reading of the pipe would not end the reading.
    """
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "hloom", "verify", "pipe"]
    # Shells let what they start in the background ignore the signal, and tests may run there.
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with process, (tmp_path / "pipe").open("w"):  # opens when the reader does
        wait_for_state("S", process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "")
