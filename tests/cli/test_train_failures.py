"""`hloom train` with failures: losses and state are those of the run in which the change was planned, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import hloom as package
import pytest
from hloom.runtime.checkpoint.step_folder import steps_in
from support.command_line import EXAMPLES, Outcome, have_mpi, hloom, process

pytestmark = pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")

MLP = EXAMPLES / "mlp_train.hlo"
TRANSFORMER = EXAMPLES / "transformer_train.hlo"
STEPS = 5


def train(file: Path, folder: Path, *more: str) -> Outcome:
    """Trains, with state and losses in the folder."""
    fixed = ("--steps", str(STEPS), "--checkpoint", folder.name, "--metrics", f"{folder.name}.jsonl", "--every", "1")
    last = dict(zip(more[::2], more[1::2]))
    fixed = tuple(w for pair in zip(fixed[::2], fixed[1::2]) if pair[0] not in last for w in pair)
    return process("train", file, *fixed, *more, "--remarks", "none", cwd=folder.parent)


def losses(folder: Path) -> list[float]:
    lines = folder.with_name(f"{folder.name}.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(len(lines)))
    return [json.loads(line)["loss"] for line in lines]


def state(file: Path, folder: Path) -> list[bytes]:
    local = package.partition(package.load(file))
    assert steps_in(folder)[0] == STEPS
    return [array.tobytes() for array in package.checkpoint.load(folder, local).arrays]


def mesh_of(done: Outcome) -> str:
    return done.err.split("a mesh of ")[1].split()[0]


def test_a_killed_rank_is_folded(tmp_path: Path) -> None:
    planned = hloom("train", MLP, "--steps", "5", "--metrics", "planned.jsonl", "--checkpoint", "planned", cwd=tmp_path)
    assert planned.code == 0, planned.err
    done = train(MLP, tmp_path / "failed", "--ranks", "3", "--on-failure", "fold", "--fault", "1,5,kill")
    assert done.code == 0, done.err
    assert "was lost at all-" in done.err
    assert "the job goes on at step " in done.err
    assert "start 2" not in done.err  # the ranks that are left are the same processes
    assert "on 8 devices on 2 MPI ranks" in done.out
    assert losses(tmp_path / "failed") == losses(tmp_path / "planned")
    assert state(MLP, tmp_path / "failed") == state(MLP, tmp_path / "planned")


def test_options_that_need_others(tmp_path: Path) -> None:
    done = hloom("train", MLP, "--steps", "5", "--on-failure", "fold", cwd=tmp_path)
    assert (done.code, "--on-failure is about ranks" in done.err) == (2, True)
    done = hloom("train", MLP, "--steps", "5", "--ranks", "2", "--on-failure", "fold", cwd=tmp_path)
    assert (done.code, "--on-failure goes on from a checkpoint" in done.err) == (2, True)
    done = hloom("train", MLP, "--steps", "5", "--ranks", "2", "--fault", "1,burn", cwd=tmp_path)
    assert (done.code, "is not of the form RANK,COLLECTIVE,kill|stop|slow" in done.err) == (2, True)


def collectives(file: Path, ranks: int) -> int:
    """The number of collectives that a rank starts in a step."""
    program = package.compile(package.load(file), ranks=ranks)
    return len(program.simulated.executable.compilation.collectives)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fold", "shrink"])
@pytest.mark.parametrize(("file", "every"), [(MLP, 1), (TRANSFORMER, 8)])
def test_a_rank_killed_at_any_collective(file: Path, every: int, way: str, tmp_path: Path) -> None:
    """The planned run has the same mesh from the same step on."""
    count = collectives(file, 3)
    assert count > 1
    for number in range(2 * count, 3 * count, every):
        failed, planned = tmp_path / f"failed{number}", tmp_path / f"planned{number}"
        done = train(file, failed, "--ranks", "3", "--on-failure", way, "--fault", f"{number % 3},{number},kill")
        assert done.code == 0, done.err
        since = done.err.split("goes on at step ")[1].split(",")[0]
        if int(since):
            assert train(file, planned, "--ranks", "3", "--steps", since).code == 0
        more = ("--mesh", mesh_of(done)) if way == "shrink" else ()
        assert train(file, planned, "--ranks", "2", *more).code == 0
        assert losses(failed) == losses(planned), number
        assert state(file, failed) == state(file, planned), number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "ranks"),
    [
        (("1,4,kill", "2,4,kill"), 1),  # two at once
        (("1,4,kill", "0,1,kill,1"), 1),  # the second where the job has just gone on
        (("0,4,kill",), 2),
        (("2,3,stop",), 2),
    ],
)
def test_several_failures_and_stopped_ranks(faults: tuple[str, ...], ranks: int, tmp_path: Path) -> None:
    given = [word for fault in faults for word in ("--fault", fault)]
    more = ("--ranks", "3", "--on-failure", "fold", "--timeout", "3")
    done = process("train", MLP, "--steps", "5", "--checkpoint", "s", "--metrics", "s.jsonl", "--every", "1", *more,
                   *given, cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    assert f"on {ranks} MPI rank" in done.out
    one = hloom("train", MLP, "--steps", "5", "--metrics", "one.jsonl", cwd=tmp_path)
    assert one.code == 0
    assert losses(tmp_path / "s") == losses(tmp_path / "one")


@pytest.mark.slow
def test_a_failure_without_recovery_ends_the_job(tmp_path: Path) -> None:
    done = process("train", MLP, "--steps", "5", "--ranks", "2", "--fault", "1,3,kill", cwd=tmp_path)
    assert done.code == 75
    assert "rank 1" in done.err
    slow = process("train", MLP, "--steps", "3", "--ranks", "2", "--fault", "1,0,slow", cwd=tmp_path)
    assert slow.code == 0, slow.err
