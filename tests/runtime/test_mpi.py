"""LOCAL programs on real MPI ranks, and the launcher that starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hloom.runtime.ranks import launch
from hloom.runtime.ranks.blocks import devices_of
from hloom.runtime.ranks.library import MpiMissing
from support.command_line import environment
from support.processes import PATIENCE, needs_proc, parent, wait_for_state

PROGRAM = Path(__file__).with_name("mpi_program.py")
TESTS = Path(__file__).parents[1]
LAUNCHER = TESTS / "support" / "on_ranks.py"
SOURCES = TESTS.parent / ".import"


def have_mpi() -> bool:
    pytest.importorskip("mpi4py")
    try:
        launch.find_mpiexec()
    except MpiMissing:
        return False
    return True


def start(case: str, ranks: int, *more: str, **variables: str) -> subprocess.Popen[str]:
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    variables = {"PYTHONPATH": f"{SOURCES}{os.pathsep}{TESTS}", "OPENBLAS_NUM_THREADS": "7", **variables}
    return subprocess.Popen(
        [sys.executable, str(LAUNCHER), str(PROGRAM), str(ranks), case, *more],
        env=environment(**variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def outcome(case: str, ranks: int, *more: str, text: str = "", **variables: str) -> tuple[int, str]:
    with start(case, ranks, *more, **variables) as job:
        try:
            _, errors = job.communicate(text, timeout=PATIENCE)
        finally:
            job.kill()  # after a timeout, lest it be waited for again; its ranks go with it
    return job.returncode, errors


@pytest.mark.parametrize("collectives", [pytest.param("mpi", marks=pytest.mark.slow), "shared"])
@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4))])
def test_ranks_give_what_the_simulator_gives(ranks: int, collectives: str) -> None:
    code, errors = outcome("programs", ranks, HLOOM_COLLECTIVES=collectives)
    assert code == 0, errors


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("ranks", "most", "collectives"),
    [(2, 8, "shared"), *(pytest.param(*row, marks=pytest.mark.slow) for row in ((2, 8, "mpi"), (4, 8, "shared")))],
)
def test_random_orders_give_the_same_bits(ranks: int, most: int, collectives: str, count: int) -> None:
    """Through MPI only on two ranks: with more, MPI adds in its own order."""
    code, errors = outcome("orders", ranks, "0", str(count), str(most), HLOOM_COLLECTIVES=collectives)
    assert code == 0, errors


@pytest.mark.parametrize("case", [pytest.param("killed", marks=pytest.mark.slow), "raises"])
def test_a_rank_that_ends_without_a_verdict_ends_the_job(case: str) -> None:
    code, errors = outcome(case, 2)
    assert code == 75, errors


def test_a_failed_rank_ends_the_others_without_a_banner_of_mpi() -> None:
    assert outcome("one_fails", 2) == (1, "")


@pytest.mark.parametrize("collectives", [pytest.param("mpi", marks=pytest.mark.slow), "shared"])
def test_errors_of_ranks_are_told_once_and_who_works_is_named_and_waited_for(collectives: str) -> None:
    """The error of one rank reaches the others; one that all ranks make is printed by one."""
    code, errors = outcome("told", 2, HLOOM_COLLECTIVES=collectives)
    assert code == 0, errors
    lines = errors.splitlines()
    assert lines.count("wrong input") == 2
    failed = re.compile(r"rank (\d) on (\S+): rank \1 \(host \2, process \d+\) failed: hloom: error: input 0 has "
                        r"dimensions \[(\d)\], the program takes f32\[3\]")  # fmt: skip
    told = [found for line in lines if (found := failed.fullmatch(line))]
    assert sorted(found[3] for found in told) == ["4", "5"]
    assert [found[1] for found in told if found[3] == "4"] == ["1"]
    late = [line for line in lines if line != "wrong input" and not failed.fullmatch(line)]
    assert late
    assert all(
        re.fullmatch(r"hloom: rank 1 .* has not reached all-reduce ar .* s: it has computed since the start .*", line)
        for line in late
    )


def test_what_fails_before_the_start_is_raised_once() -> None:
    assert outcome("only_there", 3) == (65, "")


def test_under_another_launcher_the_failed_rank_reports_before_the_end() -> None:
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    known = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe"}  # fmt: skip
    done = subprocess.run(
        [launch.find_mpiexec(), "-n", "2", sys.executable, str(PROGRAM), "wrong_input"],
        env=os.environ | known | {"PYTHONPATH": f"{SOURCES}{os.pathsep}{TESTS}"},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 65, done.stderr
    assert "wrong input" in done.stderr.splitlines()


@needs_proc
@pytest.mark.parametrize("collectives", [pytest.param("mpi", marks=pytest.mark.slow), "shared"])
def test_a_stopped_rank_is_named_and_given_up_at_the_deadline(collectives: str) -> None:
    code, errors = outcome("stopped", 2, HLOOM_COLLECTIVES=collectives)
    assert code == 75
    assert re.search(
        r"rank 1 \(host \S+, process \d+\) has not reached all-reduce ar \(reduce\.hlo:\d+:\d+\) for \d+ s: "
        r"it does not answer, its process is stopped", errors,
    )  # fmt: skip


def test_a_rank_that_stops_at_the_start_is_given_up_at_the_deadline() -> None:
    code, errors = outcome("stopped_early", 2)
    assert code == 75
    assert "a rank has not reached the start of the program for 2 s" in errors


@pytest.mark.parametrize("collectives", [pytest.param("mpi", marks=pytest.mark.slow), "shared"])
def test_a_lost_rank_is_a_failure_of_its_own_class(collectives: str, tmp_path: Path) -> None:
    if not have_mpi() or b"Open MPI" not in subprocess.check_output([launch.find_mpiexec(), "--version"]):
        pytest.skip("only Open MPI goes on without a rank")
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f'#!/bin/sh\nexec "{launch.find_mpiexec()}" --with-ft ulfm "$@"\n')
    launcher.chmod(0o755)
    code, errors = outcome("lost", 2, HLOOM_MPIEXEC=str(launcher), HLOOM_COLLECTIVES=collectives)
    assert code == 75
    assert re.search(r"rank 1 on (\S+): rank 1 \(host \1, process \d+\) was lost at all-reduce ar", errors)


@pytest.mark.slow
def test_failures_of_all_ranks_are_quiet() -> None:
    assert outcome("too_many", 2) == (65, "")


@needs_proc
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_signals_end_all_ranks(number: signal.Signals) -> None:
    with start("sleeps", 2) as job:
        assert job.stdout is not None
        ranks = [int(job.stdout.readline()) for _ in range(2)]
        job.send_signal(number)
        assert job.wait(PATIENCE) == 128 + number
    wait_for_state("", *ranks)


@needs_proc
@pytest.mark.parametrize("with_mpiexec", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nobody_outlives_who_started_it(with_mpiexec: bool) -> None:
    with start("sleeps", 2) as job:
        assert job.stdout is not None
        ranks = [int(job.stdout.readline()) for _ in range(2)]
        mpiexec = parent(ranks[0])
        if with_mpiexec:
            os.kill(mpiexec, signal.SIGKILL)
        job.kill()
        wait_for_state("", mpiexec, *ranks)


def test_missing_launcher() -> None:
    code, errors = outcome("programs", 2, HLOOM_MPIEXEC="/nowhere/mpiexec")
    assert code == 69
    assert "HLOOM_MPIEXEC=/nowhere/mpiexec cannot be run" in errors


@pytest.mark.parametrize("survives", [False, True])
def test_a_launcher_that_does_not_run(
    survives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/nowhere/sh\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("HLOOM_MPIEXEC", str(launcher))
    assert launch.launch([], 2, survives=survives) == 69
    assert capfd.readouterr().err == f"hloom: error: {launcher} cannot be run: No such file or directory\n"


def test_a_launcher_that_is_killed_is_named(tmp_path: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\nkill -KILL $$\n")
    launcher.chmod(0o755)
    code, errors = outcome("programs", 2, HLOOM_MPIEXEC=str(launcher))
    assert (code, errors) == (75, f"hloom: error: {launcher} was ended by SIGKILL\n")


def test_ranks_fill_the_hosts_evenly(tmp_path: Path) -> None:
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    launcher = tmp_path / "mpiexec"
    launcher.write_text(
        f'#!/bin/sh\nexec "{launch.find_mpiexec()}" --host localhost:1,elsewhere:1 --do-not-launch --display map "$@"\n'
    )
    launcher.chmod(0o755)
    with start("programs", 4, HLOOM_MPIEXEC=str(launcher)) as job:
        placed, _ = job.communicate(timeout=PATIENCE)
    if "Num procs:" not in placed:
        pytest.skip("this mpiexec shows no map")
    assert [line.rsplit(":", 1)[1].strip() for line in placed.splitlines() if "Num procs:" in line] == ["2", "2"]


def test_other_hosts_get_our_variables(tmp_path: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text('#!/bin/sh\necho "$OMPI_MCA_mca_base_env_list"\n')
    launcher.chmod(0o755)
    with start("programs", 2, HLOOM_MPIEXEC=str(launcher), OMPI_MCA_mca_base_env_list="MINE") as job:
        taken, _ = job.communicate(timeout=PATIENCE)
    names = taken.strip().split(";")
    assert names[0] == "MINE"
    assert {"HLOOM_EXPECTED_RANKS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH"} <= set(names)


@pytest.mark.parametrize(("here", "starter"), [("ssh", ""), ("nothing", "isolated")])
def test_hosts_without_a_remote_shell(here: str, starter: str, tmp_path: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text('#!/bin/sh\necho "plm=$OMPI_MCA_plm"\n')
    (tmp_path / here).write_text("#!/bin/sh\n")
    for file in (launcher, tmp_path / here):
        file.chmod(0o755)
    with start("programs", 2, HLOOM_MPIEXEC=str(launcher), PATH=str(tmp_path)) as job:
        printed, _ = job.communicate(timeout=PATIENCE)
    assert printed.strip() == f"plm={starter}"


def test_inside_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert not launch.inside_launcher()
    monkeypatch.setenv("PMI_SIZE", "2")
    assert launch.inside_launcher()


def test_blocks_of_devices() -> None:
    assert [list(devices_of(r, 3, 8)) for r in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [list(devices_of(r, 2, 2)) for r in range(2)] == [[0], [1]]
