"""`hloom train`: on ranks as in one process, resumed, and its messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import EXAMPLES, have_mpi, hloom, process

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
        more = ("--ranks", "3", "--checkpoint", "steps", "--metrics", "m.jsonl")
        done = process("train", MLP, "--steps", "4", *more, cwd=tmp_path)
        assert done.code == 0, done.err
        assert "steps 2 to 3 on 8 devices on 3 MPI ranks" in done.out
        assert losses(tmp_path / "m.jsonl") == losses(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--steps", "2", "--every", "often"), 65, "every='often' is neither auto"),
        (("--steps", "2", "--state", "9"), 65, "result 8 of jit_train_step is not like parameter 8"),
        (("--steps", "2", "--inputs", "none.py:f"), 65, "none.py cannot be read"),
        ((), 2, "--steps"),
        (("--steps", "1", "--checkpoint", "/dev/null/steps"), 74, "cannot be written to /dev/null/steps"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = hloom("train", MLP, *arguments, cwd=tmp_path)
    assert (done.code, message in done.err) == (code, True), done.err
