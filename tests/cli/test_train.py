"""`hloom train`: on ranks as in one process, resumed, and its messages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hloom.runtime.checkpoint.step_folder import steps_in
from support.command_line import EXAMPLES, environment, have_mpi, hloom, process
from support.processes import PATIENCE

MLP = EXAMPLES / "mlp_train.hlo"


def losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def test_the_same_losses_on_ranks_after_a_resume(tmp_path: Path) -> None:
    own = hloom("train", MLP, "--steps", "4", "--metrics", "one.jsonl", "--json", cwd=tmp_path)
    assert own.code == 0, own.err
    assert json.loads(own.out)["loss"] == losses(tmp_path / "one.jsonl")[-1]
    begun = hloom("train", MLP, "--steps", "2", "--checkpoint", "steps", "--metrics", "m.jsonl", cwd=tmp_path)
    assert begun.code == 0, begun.err
    assert "steps 0 to 1 on 8 simulated devices" in begun.out
    if have_mpi():
        more = ("--ranks", "2", "--checkpoint", "steps", "--metrics", "m.jsonl")
        done = process("train", MLP, "--steps", "4", *more, cwd=tmp_path)
        assert done.code == 0, done.err
        assert "steps 2 to 3 on 8 devices on 2 MPI ranks" in done.out
        assert losses(tmp_path / "m.jsonl") == losses(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--steps", "2", "--every", "often", "--checkpoint", "d"), 65, "every='often' is neither auto"),
        (("--steps", "2", "--state", "9"), 65, "result 8 of jit_train_step is not like parameter 8"),
        (("--steps", "2", "--inputs", "none.py:f"), 65, "none.py cannot be read"),
        (("--steps", "2", "--initial", "none=zeros"), 65, "--initial:1:1: error: no input is called 'none'"),
        ((), 2, "--steps"),
        (("--steps", "1", "--checkpoint", "/dev/null/steps"), 74, "cannot be written to /dev/null/steps"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = hloom("train", MLP, *arguments, cwd=tmp_path)
    assert (done.code, message in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ((), signal.SIGTERM),
        ((), signal.SIGINT),
        pytest.param(("--ranks", "2"), signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(("--ranks", "2"), signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(("--ranks", "2", "--on-failure", "fold"), signal.SIGUSR1, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run_after_its_step(more: tuple[str, ...], sent: signal.Signals, tmp_path: Path) -> None:
    """The last step is in the checkpoint, and the same command goes on from there."""
    fixed = ("train", str(MLP), "--checkpoint", "steps", "--metrics", "m.jsonl", "--every", "100000", *more)
    job = subprocess.Popen([sys.executable, "-m", "hloom", *fixed, "--steps", "100000"], cwd=tmp_path,
                           env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    end, metrics = time.monotonic() + PATIENCE, tmp_path / "m.jsonl"
    while job.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < 3):
        assert time.monotonic() < end
        time.sleep(0.01)
    job.send_signal(sent)
    _, err = job.communicate(timeout=PATIENCE)
    assert (job.returncode, "a signal ended the run after step " in err) == (128 + sent, True), err
    done = len(losses(metrics))
    assert steps_in(tmp_path / "steps") == [done]
    assert hloom(*fixed, "--steps", str(done + 1), cwd=tmp_path).code == 0
    assert len(losses(metrics)) == done + 1
