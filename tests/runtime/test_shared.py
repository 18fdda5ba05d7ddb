"""Collectives through memory that ranks share: the bits of the simulator, late and dead ranks, refused memory.

Cases that need as many ranks run in turn in one job, since most of a job's time is that of its start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hloom.ir.diagnostics import CompileError
from hloom.runtime.fabric.channel import WORDS, Channel, Heap
from hloom.runtime.fabric.window import SharedWindow
from hloom.runtime.ranks import launch
from hloom.runtime.ranks.library import MpiMissing
from hloom.runtime.ranks.mode import chosen_mode
from support.command_line import environment
from support.processes import PATIENCE

PROGRAM = Path(__file__).with_name("shared_program.py")
TESTS = Path(__file__).parents[1]
LAUNCHER = TESTS / "support" / "on_ranks.py"
PATH = [TESTS.parent / ".import", TESTS, TESTS / "runtime"]
SHARED = Path("/dev/shm")
slow = pytest.mark.slow


def outcome(cases: str, ranks: int, *before: str, **variables: str) -> tuple[int, str]:
    pytest.importorskip("mpi4py")
    try:
        launch.find_mpiexec()
    except MpiMissing:
        pytest.skip("there is no mpiexec")
    variables = {"PYTHONPATH": os.pathsep.join(map(str, PATH)), "HLOOM_TIMEOUT": f"{PATIENCE}", **variables}
    done = subprocess.run(
        [*before, sys.executable, str(LAUNCHER), str(PROGRAM), str(ranks), *cases.split()],
        env=environment(**variables), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_kind_gives_the_bits_of_the_simulator(ranks: int) -> None:
    assert outcome("kinds", ranks, HLOOM_COLLECTIVES="shared") == (0, "")


@pytest.mark.parametrize(
    ("ranks", "cases"),
    [pytest.param(2, "in_flight", marks=slow), pytest.param(3, "in_flight", marks=slow),
     (4, "in_flight late_part two_nodes")],
)
def test_more_collectives_in_flight_than_there_is_room_late_parts_and_several_nodes(ranks: int, cases: str) -> None:
    assert outcome(cases, ranks, HLOOM_COLLECTIVES="shared") == (0, "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory as Linux tells it")
@pytest.mark.parametrize(
    ("ranks", "cases", "trips"),
    [
        (2, "late kinds repeated native_steps failing other_paths", 200),
        pytest.param(4, "repeated", 10_000, marks=slow), pytest.param(2, "native_steps", 10_000, marks=slow),
    ],
)  # fmt: skip
def test_repetition_takes_no_more_memory_and_errors_release_it(ranks: int, cases: str, trips: int) -> None:
    """Of collectives, and of steps on native kernels; after it, ranks that come to different collectives are named.
    Before it, every kind gives the bits of the simulator.
    """
    assert outcome(cases, ranks, HLOOM_COLLECTIVES="shared", TRIPS=str(trips)) == (0, "")


@pytest.mark.skipif(not SHARED.is_dir(), reason="looks at the folder of shared memory")
@pytest.mark.parametrize("case", [pytest.param("killed", marks=slow), "killed_in_training"])
def test_a_killed_rank_is_named_and_leaves_no_memory_behind(case: str) -> None:
    def windows() -> set[str]:
        return {path.name for path in SHARED.iterdir() if "osc" in path.name}

    before = windows()
    code, errors = outcome(case, 2, HLOOM_COLLECTIVES="shared")
    assert code == 75
    assert "rank 1" in errors
    assert windows() <= before


REMARK = "hloom: remark: {}collectives go through MPI, not shared memory: {}"


def test_mpi_does_what_shared_memory_has_no_room_for_unless_that_is_demanded() -> None:
    code, errors = outcome("demanded none_shared little_room", 2)
    assert code == 0, errors
    remarks = (
        ("", "the largest needs 256 bytes per rank, there are 0"), ("", "there are no 8,192 bytes of shared memory"),
        ("", "MPI shares no memory: "), ("some ", "the largest needs 160,128 bytes per rank"),
    )  # fmt: skip
    for line, remark in zip(errors.splitlines(), remarks, strict=True):  # each once
        assert line.startswith(REMARK.format(*remark))


@pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts a small folder of shared memory")
def test_a_small_folder_of_shared_memory() -> None:
    mount = "mount -t tmpfs -o size=1m none /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed")
    before = ("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh")
    # Open MPI's own messages go another way, since they would need more.
    code, errors = outcome("small_folder", 2, *before, OMPI_MCA_btl="self,tcp")
    assert code == 0, errors
    assert "hloom: remark: some collectives go through MPI, not shared memory: the largest needs " in errors


def test_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_COLLECTIVES", raising=False)
    assert chosen_mode(None) == "auto"
    monkeypatch.setenv("HLOOM_COLLECTIVES", "mpi")
    assert (chosen_mode(None), chosen_mode("shared")) == ("mpi", "shared")
    monkeypatch.setenv("HLOOM_COLLECTIVES", "tcp")
    with pytest.raises(CompileError, match="HLOOM_COLLECTIVES=tcp is none of auto, shared, mpi"):
        chosen_mode(None)


def channels() -> tuple[Channel, Channel]:
    """The two ends of a channel between two ranks, without memory that is shared."""
    words = [[0] * WORDS for _ in range(2)]
    windows: list[Any] = [SimpleNamespace(words=words, own=rank, order=lambda: None) for rank in range(2)]
    first, second = (Channel(cast(SharedWindow, window), 0, (0, 1)) for window in windows)
    return first, second


def test_a_channel_counts_what_is_posted_and_read() -> None:
    first, second = channels()
    assert not second.has_posted([0], 0)
    assert (first.post(64, 7), first.post(128, 8)) == (0, 1)
    assert second.has_posted([0], 1)
    assert [second.posted(0, number) for number in (0, 1)] == [(64, 7), (128, 8)]
    first.mark_read(1)
    second.mark_read(0)
    assert (first.is_read(0), first.is_read(1)) == (True, False)
    for number in range(2, 9):
        assert first.may_begin()
        assert first.post(0, 0) == number
    assert not first.may_begin()  # entry 1 is open
    second.mark_read(1)
    assert first.may_begin()


def test_a_rank_posts_over_nothing_that_it_has_not_finished_itself() -> None:
    first, second = channels()
    for number in range(8):
        first.post(64 * number, number)
    second.mark_read(7)
    assert not first.may_begin()
    assert first.posted(0, 0) == (0, 0)
    first.mark_read(0)
    assert first.may_begin()


def test_a_heap_gives_places_out_again_when_all_have_read_them() -> None:
    first, second = channels()
    heap = Heap(300)
    for expected in (0, 100, 200):
        found = heap.take(100)
        assert found is not None
        place, uses = found
        assert place == expected
        uses.append((first, first.post(place, 0)))
    assert heap.take(1) is None
    assert heap.channels() == [first] * 3
    for channel in (first, second):
        channel.mark_read(1)
    found = heap.take(150)
    assert found is not None
    assert found[0] == 0
    found[1].append((first, first.post(0, 0)))
    assert heap.take(51) is None
    again = heap.take(50)
    assert again is not None
    assert again[0] == 150
