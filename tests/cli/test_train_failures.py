"""`hloom train` with failures: losses and state are those of the run in which the change was planned, to the bit."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import hloom as package
import pytest
from hloom.runtime.checkpoint.step_folder import steps_in
from hloom.runtime.ranks.leftovers import remove_leftovers
from hloom.runtime.ranks.processes import children
from support.command_line import EXAMPLES, Outcome, environment, have_mpi, hloom, process
from support.processes import PATIENCE, needs_proc
from support.processes import state as state_of

pytestmark = pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")

MLP = EXAMPLES / "mlp_train.hlo"
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


def state(file: Path, folder: Path, steps: int = STEPS) -> list[bytes]:
    local = package.partition(package.load(file))
    assert steps_in(folder)[0] == steps
    return [array.tobytes() for array in package.checkpoint.load(folder, local).arrays]


@pytest.mark.slow
def test_the_run_that_survives(tmp_path: Path) -> None:
    """The command of the page survives, from memory, with the numbers of the run without a failure."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    page = (EXAMPLES.parent / "docs" / "failures.md").read_text()
    (line,) = re.findall(r"^\$ hloom (train .* --fault .*)", page, re.MULTILINE)
    done = process(*line.split(), "--metrics", "steps.jsonl", "--remarks", "none", cwd=tmp_path)
    assert done.code == 0, done.err
    assert re.search(r"hloom: rank 1 \(host .*\) was lost", done.err), done.err
    assert "the job goes on at step 15, on 3 ranks, with the state in memory" in done.err
    assert "steps 15 to 19 on 8 devices on 3 MPI ranks" in done.out
    planned(MLP, tmp_path / "planned", [], 20)
    assert losses(tmp_path / "steps") == losses(tmp_path / "planned")
    assert state(MLP, tmp_path / "steps", 20) == state(MLP, tmp_path / "planned", 20)


def test_options_that_need_others(tmp_path: Path) -> None:
    done = hloom("train", MLP, "--steps", "5", "--on-failure", "fold", cwd=tmp_path)
    assert (done.code, "--on-failure is about ranks" in done.err) == (2, True)
    done = hloom("train", MLP, "--steps", "5", "--ranks", "2", "--on-failure", "fold", cwd=tmp_path)
    assert (done.code, "--on-failure goes on from a checkpoint" in done.err) == (2, True)
    for options, other in (
        ("--every 2", "--checkpoint"), ("--keep 3", "--checkpoint"), ("--starts 2", "--on-failure"),
        ("--snapshots 0 --checkpoint d --ranks 2 --on-failure restart", "--on-failure fold or shrink"),
        ("--spares 1 --ranks 2", "--on-failure fold or shrink"), ("--preflight", "--ranks"),
        ("--fault 0,1,kill", "--ranks"),
    ):  # fmt: skip
        done = hloom("train", MLP, "--steps", "5", *options.split(), cwd=tmp_path)
        assert (done.code, other in done.err.splitlines()[-1]) == (2, True), (options, done.err)
    done = hloom("train", MLP, "--steps", "5", "--ranks", "2", "--fault", "1,burn", cwd=tmp_path)
    assert (done.code, "is not of the form RANK,COLLECTIVE,kill|stop|slow" in done.err) == (2, True)


def collectives(file: Path, ranks: int) -> int:
    """The number of collectives that a rank starts in a step."""
    program = package.compile(package.load(file), ranks=ranks)
    return len(program.simulated.executable.compilation.collectives)


def program_of(name: str, folder: Path) -> Path:
    """A step program: an example, or a model that is made here."""
    if name.endswith(".hlo"):
        return EXAMPLES / name
    pytest.importorskip("jax")
    made = folder / f"{name}.hlo"
    subprocess.run([sys.executable, str(EXAMPLES / "models" / "make.py"), name, "--out", str(made)], check=True)
    return made


def planned(file: Path, folder: Path, changes: list[tuple[int, str]], steps: int) -> None:
    """Trains in this process, where nothing fails; before each of these steps the mesh changes."""
    mesh = ""
    for until, then in [*changes, (steps, "")]:
        if until:
            more = (*(("--mesh", mesh) if mesh else ()), "--checkpoint", folder.name, "--every", "100")
            done = hloom("train", file, "--steps", str(until), "--metrics", f"{folder.name}.jsonl", "--remarks", "none",
                         *more, cwd=folder.parent)  # fmt: skip
            assert done.code == 0, done.err
        mesh = then


GOES_ON = re.compile(r"goes on at step (\d+), on (\d) ranks?(?: and a mesh of (\S+?),? )?.*?with the state in (\w+)")
RANKS = 4
KILLS = 3  # of a job, one after the other


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fold", "shrink"])
@pytest.mark.parametrize("name", ["mlp_train.hlo", "transformer_train.hlo", "experts"])
def test_a_rank_killed_at_any_collective(name: str, way: str, tmp_path: Path) -> None:
    """The state is that of memory. The planned run has the same mesh from the same step on: losses and all arrays of
    the state are the same to the bit.
    """
    file = program_of(name, tmp_path)
    count = collectives(file, RANKS)
    assert count > 1
    for first in range(0, count, KILLS):
        failed, plan = tmp_path / f"failed{first}", tmp_path / f"planned{first}"
        points = [min(first + number, count - 1) for number in range(KILLS)]
        faults = [f"{(first + n) % (RANKS - n)},{count + point},kill,{n}" for n, point in enumerate(points)]
        given = [word for fault in faults for word in ("--fault", fault)]
        more = ("--steps", "9", "--every", "100", "--ranks", str(RANKS), "--on-failure", way, "--timeout", "60")
        done = train(file, failed, *more, *given)
        assert done.code == 0, done.err
        said = GOES_ON.findall(done.err)
        assert [(ranks, place) for _, ranks, _, place in said] == [(str(n), "memory") for n in (3, 2, 1)], done.err
        planned(file, plan, [(int(step), mesh) for step, _, mesh, _ in said], 9)
        assert losses(failed) == losses(plan), points
        assert state(file, failed, 9) == state(file, plan, 9), points


@pytest.mark.slow
def test_shrink_to_a_program_that_was_prepared(tmp_path: Path) -> None:
    """A slow rank gives the others time to prepare the next mesh; the numbers are those of the planned change."""
    failed, plan = tmp_path / "failed", tmp_path / "planned"
    more = ("--every", "200", "--steps", "105", "--ranks", "4", "--on-failure", "shrink", "--timeout", "20")
    done = train(MLP, failed, *more, "--fault", "2,0,slow", "--fault", "1,200,kill")
    assert done.code == 0, done.err
    ((step, ranks, mesh, place),) = GOES_ON.findall(done.err)
    assert (step, ranks, mesh, place) == ("100", "3", "data=6", "memory"), done.err
    assert float(re.findall(r", program ([\d.]+),", done.err)[0]) < 0.2, done.err  # 0.3 to 0.5 where it is made then
    planned(MLP, plan, [(100, mesh)], 105)
    assert losses(failed) == losses(plan)
    assert state(MLP, failed, 105) == state(MLP, plan, 105)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fold", "shrink", "restart"])
@pytest.mark.parametrize("fault", ["0,write:4,kill", "1,write:4,kill", "1,write:4,stop"])
def test_a_failure_while_a_checkpoint_is_written(fault: str, way: str, tmp_path: Path) -> None:
    """The job goes on from the checkpoint before it, with the numbers of the run in which that was planned."""
    failed, plan = tmp_path / "failed", tmp_path / "planned"
    more = ("--every", "2", "--steps", "7", "--ranks", "3", "--on-failure", way, "--timeout", "20", "--fault", fault)
    done = train(MLP, failed, *more, "--snapshots", "0")
    assert done.code == 0, done.err
    (said,) = re.findall(r"the job goes on at step (\d+), on \d ranks(?: and a mesh of (\S+?),? )?", done.err)
    assert said[0] == "2", done.err
    planned(MLP, plan, [(2, said[1])], 7)
    assert losses(failed) == losses(plan)
    assert state(MLP, failed, 7) == state(MLP, plan, 7)
    assert not [name for name in os.listdir(failed) if name.startswith(".")]


@pytest.mark.parametrize(
    ("faults", "more", "said"),
    [
        (("0,4,kill",), (), "on 2 ranks"),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in (
            (("1,4,kill", "2,4,kill"), (), "on 1 ranks"),  # two at once
            (("1,4,kill", "0,0,kill,1"), (), "on 1 ranks"),  # the second where the job has just gone on
            (("2,3,stop",), (), "is stopped: killed"),
            (("1,3,slow",), (), "step 5 of 5"),
            (("1,4,kill",), ("--spares", "1"), "on 3 ranks"),
            (("0,4,kill", "1,4,kill"), ("--spares", "1"), "on 2 ranks"),
            (("0,4,kill", "0,4,kill,1"), ("--spares", "2"), "on 3 ranks"),
            (("1,4,kill",), ("--snapshots", "0"), "with the state in the checkpoint"),
            (("1,4,drop-host",), (), "start 2 of the job goes on"),
        )),
    ],
)
def test_several_failures_and_stopped_ranks(
    faults: tuple[str, ...], more: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    given, begun = [word for fault in faults for word in ("--fault", fault)], time.time()
    done = train(MLP, tmp_path / "s", "--ranks", "3", "--on-failure", "fold", "--timeout", "20", *more, *given)
    assert (done.code, said in done.err) == (0, True), done.err
    one = hloom("train", MLP, "--steps", "5", "--metrics", "one.jsonl", cwd=tmp_path)
    assert one.code == 0
    assert losses(tmp_path / "s") == losses(tmp_path / "one")
    time.sleep(1)  # until segments are old enough to be nobody's
    assert remove_leftovers(since=begun) == []


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("seed", range(8))
def test_ranks_killed_during_recovery(seed: int, tmp_path: Path) -> None:
    """A second rank dies at any time after the first: the job recovers, or ends and names it."""
    draw = random.Random(seed)
    words = ("--steps", "40", "--checkpoint", "s", "--every", "5", "--metrics", "s.jsonl", "--ranks", "4")
    more = ("--on-failure", draw.choice(("fold", "shrink")), "--timeout", "20", "--remarks", "none")
    with subprocess.Popen([sys.executable, "-m", "hloom", "train", MLP, *words, *more], cwd=tmp_path, text=True,
                          env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as job:  # fmt: skip
        end, metrics = time.monotonic() + PATIENCE, tmp_path / "s.jsonl"
        while job.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < 3):
            assert time.monotonic() < end
            time.sleep(0.005)
        (mpiexec,) = children(job.pid)
        ranks = children(mpiexec)
        assert len(ranks) == 4
        for rank in draw.sample(ranks, 2):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
            time.sleep(draw.uniform(0, 0.3))
        _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert not any(state_of(process) for process in ranks)
    one = hloom("train", MLP, "--steps", "40", "--metrics", "one.jsonl", cwd=tmp_path)
    assert one.code == 0
    if "fold" in more:
        assert losses(tmp_path / "s") == losses(tmp_path / "one")


@pytest.mark.slow
def test_a_failure_without_recovery_ends_the_job(tmp_path: Path) -> None:
    done = process("train", MLP, "--steps", "5", "--ranks", "2", "--fault", "1,3,kill", cwd=tmp_path)
    assert done.code == 75
    assert "rank 1" in done.err
    slow = process("train", MLP, "--steps", "3", "--ranks", "2", "--fault", "1,0,slow", cwd=tmp_path)
    assert slow.code == 0, slow.err
