"""Recovery: the order of starts after failures, smaller meshes, and faults by their text. No rank is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hloom.driver.training.recovery import JobStart, Recovery, smaller_mesh
from hloom.runtime.fabric.rehearsal import Fault
from hloom.runtime.ranks.hosts import HostFile

LOST = 75


def starts(way: str, folder: Path, outcomes: list[tuple[int, int]], most: int = 5) -> tuple[int, list[JobStart]]:
    """Runs a job that ends with these exit codes, each after a checkpoint of this step. Returns code and starts."""
    seen: list[JobStart] = []

    def launch(start: JobStart) -> int:
        code, step = outcomes[len(seen)]
        seen.append(start)
        (folder / f"step-{step:010}").mkdir(exist_ok=True, parents=True)
        return code

    told: list[str] = []
    code = Recovery(way, folder, most, told.append).run(JobStart(0, 4), {"data": 8}, launch, LOST)
    assert len(told) == len(seen) - 1
    return code, seen


def test_restart_keeps_its_ranks_while_it_comes_further(tmp_path: Path) -> None:
    code, seen = starts("restart", tmp_path, [(75, 2), (75, 4), (0, 8)])
    assert (code, [s.ranks for s in seen], [s.number for s in seen]) == (0, [4, 4, 4], [0, 1, 2])


def test_restart_gives_up_a_rank_that_fails_again_and_again(tmp_path: Path) -> None:
    code, seen = starts("restart", tmp_path, [(75, 2), (75, 2), (75, 2), (0, 8)])
    assert (code, [s.ranks for s in seen]) == (0, [4, 4, 4, 3])


def test_fold_and_shrink_take_one_rank_less(tmp_path: Path) -> None:
    code, seen = starts("fold", tmp_path / "fold", [(75, 2), (75, 2), (0, 8)])
    assert (code, [(s.ranks, s.mesh) for s in seen]) == (0, [(4, None), (3, None), (2, None)])
    code, seen = starts("shrink", tmp_path / "shrink", [(75, 2), (75, 2), (0, 8)])
    assert (code, [(s.ranks, s.mesh) for s in seen]) == (0, [(4, None), (3, {"data": 6}), (2, {"data": 4})])


def test_a_host_that_does_not_answer_takes_its_ranks_along(tmp_path: Path) -> None:
    hosts, told = HostFile(), list[str]()
    hosts.lines = ["a slots=2", "b slots=2"]
    seen: list[tuple[int, Any, str]] = []

    def launch(start: JobStart) -> int:
        seen.append((start.ranks, start.mesh, hosts.text))
        hosts.leave_out_dead = lambda ranks: (hosts.dead.append("b"), hosts.lines.pop(), ranks // 2)[2]
        return LOST if len(seen) == 1 else 0

    assert Recovery("shrink", tmp_path, 5, told.append, hosts).run(JobStart(0, 4), {"data": 8}, launch, LOST) == 0
    assert seen == [(4, None, ""), (2, {"data": 4}, "a slots=2\n")]
    assert "host b does not answer: start 2 of the job goes on" in told[0]


def test_other_errors_and_too_many_failures_end_the_job(tmp_path: Path) -> None:
    assert starts("fold", tmp_path / "a", [(65, 2)])[0] == 65
    assert starts("fold", tmp_path / "b", [(143, 2)])[0] == 143  # stopped by its user
    code, seen = starts("fold", tmp_path / "c", [(75, n) for n in range(9)])
    assert (code, len(seen)) == (75, 4)  # no rank is left
    code, seen = starts("restart", tmp_path / "d", [(75, n) for n in range(9)], most=2)
    assert (code, len(seen)) == (75, 2)


@pytest.mark.parametrize(
    ("mesh", "devices", "wanted"),
    [
        ({"data": 8}, 7, {"data": 7}),
        ({"data": 2, "model": 4}, 7, {"data": 2, "model": 3}),
        ({"data": 8, "model": 2}, 15, {"data": 7, "model": 2}),
        ({"data": 4}, 4, {"data": 4}),
        ({"x": 2, "y": 2}, 1, {"x": 1, "y": 1}),
    ],
)
def test_the_smaller_mesh_keeps_the_most_devices(mesh: dict[str, int], devices: int, wanted: dict[str, int]) -> None:
    assert smaller_mesh(mesh, devices) == wanted


def test_faults() -> None:
    assert Fault.parse("3,40,kill") == Fault(3, 40, "kill", 0)
    assert Fault.parse("0,0,slow,2") == Fault(0, 0, "slow", 2)
    assert Fault.parse("1,write:4,kill,2") == Fault(1, 4, "kill", 2, is_write=True)
    for text in ("1,write,kill", "1,write:-4,kill", "3,40", "3,40,burn", "a,1,kill", "-1,2,kill", "1,2,kill,3,4"):
        with pytest.raises(ValueError):  # noqa: PT011 (of many kinds)
            Fault.parse(text)
