"""A few inputs of each fuzzing target; many with `pytest -m slow`, and as many as one likes with `fuzz.py`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import hloom
import pytest
from fuzz import Crash, Figures, Target, attempt, campaign, smaller, write
from fuzzing.programs import TESTS, corpus
from fuzzing.targets import TARGETS, Wrong

# Inputs by default and in slow runs, and how far some of them must come.
COUNTS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "text": (100, 20_000, ("refused", "serialized")),
    "proto": (25, 10_000, ("refused", "serialized")),
    "pipeline": (90, 10_000, ("refused", "simulated", "proved")),
    "sweep": (30, 20_000, ("refused", "parsed", "partitioned")),
    "cold": (8, 300, ("refused", "the same")),
    "strings": (200, 10_000, ("refused", "read")),
    "cli": (25, 2_000, ("exit code 0", "exit code 2", "exit code 65")),
    "schedules": (10, 5_000, ("the same",)),
    "agreement": (4, 3_000, ("proved", "partly proved")),
    "shardings": (60, 20_000, ("the same",)),
}


def check(found: Figures) -> None:
    """No crashes; the first one in full where there are."""
    assert not found.crashes, f"{found}\nseed {found.crashes[0].seed}: {found.crashes[0].report}"


@pytest.mark.parametrize("target", COUNTS)
def test_few(target: str) -> None:
    few, _, reached = COUNTS[target]
    if target == "shardings":
        pytest.importorskip("jax")
    found = campaign(target, range(few))
    check(found)
    assert found.outcomes.total() == few
    assert found.outcomes.keys() >= set(reached)


@pytest.mark.share(8)
@pytest.mark.parametrize("start", range(10_000, 12_000, 250))
def test_sweep(start: int) -> None:
    """Inputs with which the passes meet all kinds of programs; eight times as many in slow runs."""
    check(campaign("sweep", range(start, start + 250)))


@pytest.mark.slow
@pytest.mark.parametrize("target", COUNTS)
def test_many(target: str) -> None:
    few, many, _ = COUNTS[target]
    check(campaign(target, [*range(few, 2 * few), *range(1_000_000, 1_000_000 + many)]))


@pytest.mark.slow
def test_programs_of_jax() -> None:
    pytest.importorskip("jax")
    check(campaign("lowered", range(1000)))


def test_a_partitioned_program_that_differs_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """HloModule m
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}  ROOT y = f32[8] negate(x) }"""
    assert attempt(TARGETS["pipeline"], text) == "proved"
    wrong = hloom.partition(hloom.parse(text.replace("negate", "abs")))
    monkeypatch.setattr(hloom, "partition", lambda *arguments: wrong)  # pyright: ignore
    found = attempt(TARGETS["pipeline"], text)
    assert isinstance(found, Crash)
    assert "the partitioned program differs" in found.report


def test_inputs_depend_on_seeds_alone() -> None:
    for target in TARGETS.values():
        if target not in (TARGETS["lowered"], TARGETS["sweep-lowered"]):
            assert target.make(random.Random(5)) == target.make(random.Random(5))
            assert target.make(random.Random(5)) != target.make(random.Random(6))


def test_the_programs_themselves_run() -> None:
    assert len(corpus()) > 500
    assert {attempt(TARGETS["text"], text) for text in corpus()[:20]} == {"serialized"}


_ENDINGS = """
import os, sys
from fuzz import ENDED, main, spread_campaign
from fuzzing.targets import TARGETS, Target
from fuzzing.workers import results
from pathlib import Path

def works_on(seed):
    if seed == 3:
        os._exit(1)
    while seed == 6:
        pass
    return seed * seed

found = dict(results(works_on, range(9), workers=2, patience=1))
assert found == {seed: None if seed in (3, 6) else seed * seed for seed in range(9)}, found
folder, sys.argv = sys.argv[1], ["fuzz.py", "strings", "--count", "60", "--workers", "2"]
assert main() == 0
TARGETS["strings"] = Target(lambda rng: "the end", lambda text: os._exit(1))
crashes = spread_campaign("strings", range(2), 1, Path(folder)).crashes
assert [(c.kind, c.input) for c in crashes] == [(ENDED, "the end")] * 2, crashes
"""


def _python(*arguments: str) -> str:
    """Runs Python in a process of its own, since this one may have threads, which are not to be forked."""
    paths = os.pathsep.join(map(str, (TESTS, TESTS.parent / ".import")))
    ended = subprocess.run([sys.executable, *arguments], env=os.environ | {"PYTHONPATH": paths}, check=False, text=True,
                           capture_output=True)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_workers_find_what_one_process_finds_and_one_that_ends_costs_an_input(tmp_path: Path) -> None:
    said = _python("-c", _ENDINGS, str(tmp_path))
    outcomes = campaign("strings", range(60)).outcomes
    assert all(f"{count} {what}" in said for what, count in outcomes.items())
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == ["the end"]


def _fails_on_seven(text: str) -> str:
    if "7" in text:
        raise ValueError("a seven")
    if "wrong" in text:
        raise Wrong("it is wrong")
    return "fine"


def test_crashes_are_found_made_small_and_written(tmp_path: Path) -> None:
    target = Target(lambda rng: str(rng.random()), _fails_on_seven)
    assert attempt(target, "1 2 3") == "fine"
    crash = attempt(target, "first line\nsecond 17 8\nlast line", 3)
    assert isinstance(crash, Crash)
    assert (crash.seed, "ValueError" in crash.kind) == (3, True)
    small = smaller(target, crash)
    assert small.input == "17"
    assert write(target, small, tmp_path, "any").read_text() == "17"
    assert "a seven" in (tmp_path / "any-3.report").read_text()
    other = attempt(target, "wrong")
    assert isinstance(other, Crash)
    assert other.kind != crash.kind


def test_time_and_memory_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(text: str) -> str:
        while True:
            try:
                while text:
                    pass
            except Exception:
                continue

    def large(text: str) -> str:
        return f"{len(bytearray(int(text)))} bytes"

    for run, value, kind in ((endless, "x", "OutOfTime"), (large, str(1 << 33), "MemoryError")):
        crash = attempt(Target(lambda rng: "", run), value, seconds=0.2)
        assert isinstance(crash, Crash)
        assert crash.kind == kind
    assert attempt(Target(lambda rng: "", large), "100") == "100 bytes"


def test_refusals_need_words() -> None:
    def refuse(text: str) -> str:
        raise hloom.CompileError([])

    assert isinstance(attempt(Target(lambda rng: "", refuse), ""), Crash)
