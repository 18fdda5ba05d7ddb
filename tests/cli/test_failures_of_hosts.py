"""Failures of hosts and links, on hosts that are network namespaces of this machine."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hloom.runtime.checkpoint.step_folder import steps_in
from support.command_line import EXAMPLES, Outcome, have_mpi, hloom, process
from support.hosts import cut, fall, have_hosts, hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (have_mpi() and have_hosts()), reason="network namespaces cannot be made"),
]
MLP = EXAMPLES / "mlp_train.hlo"


def train(folder: Path, variables: dict[str, str], *more: str) -> Outcome:
    fixed = ("--steps", "6", "--checkpoint", "steps", "--metrics", "m.jsonl", "--remarks", "none")
    return process("train", MLP, *fixed, *more, cwd=folder, **variables)


def losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("way", "faults", "said"),
    [
        ("restart", ("2,9,drop-host",), "start 2 of the job goes on at step "),
        ("fold", ("2,9,drop-host",), "start 2 of the job goes on at step "),
        # The daemon of the host lives, so the ranks of the other host go on: they hold the state, as buddies.
        ("fold", ("2,9,kill", "3,9,kill"), "the job goes on at step 4, on 2 ranks, with the state in memory"),
        ("fold", ("1,9,kill",), "the job goes on at step 4, on 3 ranks, with the state in memory"),
    ],
)
def test_a_lost_host(way: str, faults: tuple[str, ...], said: str, tmp_path: Path) -> None:
    given = [word for fault in faults for word in ("--fault", fault)]
    with hosts(tmp_path, 2, slots=2) as (_, variables):
        done = train(tmp_path, variables, "--ranks", "4", "--every", "1", "--on-failure", way, *given)
    assert (done.code, said in done.err) == (0, True), done.err
    assert hloom("train", MLP, "--steps", "6", "--metrics", "one.jsonl", cwd=tmp_path).code == 0
    # MPI adds up between hosts, in its own order.
    assert losses(tmp_path / "m.jsonl") == pytest.approx(losses(tmp_path / "one.jsonl"), rel=1e-5)


@pytest.mark.parametrize(("way", "on"), [("restart", "on 2 ranks"), ("shrink", "on 2 ranks and a mesh of data=4")])
def test_a_host_that_never_answers_again(way: str, on: str, tmp_path: Path) -> None:
    """The next start leaves it out, and takes the ranks that had slots elsewhere."""
    more = ("--ranks", "4", "--every", "1", "--on-failure", way, "--steps", "30", "--fault", "0,0,slow")
    with hosts(tmp_path, 2, slots=2) as (name, variables), ThreadPoolExecutor(1) as pool:
        running = pool.submit(train, tmp_path, variables, *more)
        while not running.done() and len(steps_in(tmp_path / "steps")) < 2:
            time.sleep(0.02)
        start = time.monotonic()
        fall(name, 2, variables)
        done, seconds = running.result(), time.monotonic() - start
    assert seconds < 60
    assert (done.code, "host 10.77.0.12 does not answer: start 2 of the job goes on" in done.err) == (0, True), done.err
    assert on in done.err
    assert len(losses(tmp_path / "m.jsonl")) == 30


def test_a_rank_stopped_alone_on_its_host_is_found_by_the_deadline(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, slots=1) as (_, variables):
        more = ("--ranks", "2", "--every", "1", "--on-failure", "fold", "--timeout", "4", "--fault", "1,9,stop")
        done = train(tmp_path, variables, *more)
    assert (done.code, "rank 1 (host" in done.err) == (0, True), done.err
    assert "does not answer" in done.err


@pytest.mark.parametrize("refuses", [False, True])
def test_preflight_names_a_cut_link_within_two_deadlines(refuses: bool, tmp_path: Path) -> None:
    with hosts(tmp_path, 3, slots=1) as (name, variables):
        start = time.monotonic()
        well = process("preflight", MLP, "--ranks", "3", "--deadline", "4", cwd=tmp_path, **variables)
        whole = time.monotonic() - start
        assert (well.code, "3 ranks on 3 hosts are well" in well.out) == (0, True), well.err
        cut(name, 2, 3, refuses)
        start = time.monotonic()
        done = process("preflight", MLP, "--ranks", "3", "--deadline", "4", cwd=tmp_path, **variables)
        seconds = time.monotonic() - start
    said = f"rank 1 (host {name}2) and rank 2 (host {name}3) do not hear each other within 4 s: the link is cut"
    assert (done.code, said in done.err) == (75, True), done.err
    assert seconds < 1.5 * whole + 2 * 4.0 + 6  # to start, two deadlines, and to end the job
