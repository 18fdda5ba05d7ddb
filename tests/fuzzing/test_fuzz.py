"""A few inputs of each fuzzing target; many with `pytest -m slow`, and as many as one likes with `fuzz.py`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import hloom
import pytest
from fuzz import ENDED, Crash, Figures, Target, attempt, campaign, smaller, spread_campaign, write
from fuzzing.programs import corpus
from fuzzing.targets import TARGETS, Wrong
from fuzzing.workers import results

# Inputs by default and in slow runs, and how far some of them must come.
COUNTS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "text": (600, 20_000, ("refused", "serialized")),
    "proto": (600, 10_000, ("refused", "serialized")),
    "pipeline": (250, 10_000, ("refused", "partitioned", "simulated")),
    "sweep": (400, 20_000, ("refused", "parsed", "partitioned")),
    "strings": (600, 10_000, ("refused", "read")),
    "cli": (100, 2_000, ("exit code 0", "exit code 2", "exit code 65")),
    "shardings": (500, 20_000, ("the same",)),
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


@pytest.mark.slow
@pytest.mark.parametrize("target", COUNTS)
def test_many(target: str) -> None:
    check(campaign(target, range(1_000_000, 1_000_000 + COUNTS[target][1])))


@pytest.mark.slow
def test_programs_of_jax() -> None:
    pytest.importorskip("jax")
    check(campaign("lowered", range(1000)))


def test_inputs_depend_on_seeds_alone() -> None:
    for target in TARGETS.values():
        if target not in (TARGETS["lowered"], TARGETS["sweep-lowered"]):
            assert target.make(random.Random(5)) == target.make(random.Random(5))
            assert target.make(random.Random(5)) != target.make(random.Random(6))


def test_the_programs_themselves_run() -> None:
    assert len(corpus()) > 500
    assert {attempt(TARGETS["text"], text) for text in corpus()[:20]} == {"serialized"}


def test_workers_find_what_one_process_finds() -> None:
    spread = spread_campaign("strings", range(60), workers=2)
    assert spread.outcomes == campaign("strings", range(60)).outcomes


def _works_on(seed: int) -> int:
    if seed == 3:
        os._exit(1)
    while seed == 6:
        pass
    return seed * seed


def test_a_process_that_ends_costs_one_input() -> None:
    found = dict(results(_works_on, range(9), workers=2, patience=1))
    assert found == {seed: None if seed in (3, 6) else seed * seed for seed in range(9)}


def test_an_input_that_ends_the_process_is_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(TARGETS, "strings", Target(lambda rng: "the end", lambda text: os._exit(1)))
    found = spread_campaign("strings", range(2), 1, tmp_path)
    assert [(c.kind, c.input) for c in found.crashes] == [(ENDED, "the end")] * 2
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

    monkeypatch.setattr("fuzz.SECONDS", 0.2)
    for run, value, kind in ((endless, "x", "OutOfTime"), (large, str(1 << 33), "MemoryError")):
        crash = attempt(Target(lambda rng: "", run), value)
        assert isinstance(crash, Crash)
        assert crash.kind == kind
    assert attempt(Target(lambda rng: "", large), "100") == "100 bytes"


def test_refusals_need_words() -> None:
    def refuse(text: str) -> str:
        raise hloom.CompileError([])

    assert isinstance(attempt(Target(lambda rng: "", refuse), ""), Crash)
