"""Every example, golden case and JAX program is proved, but for a few golden cases that are declared here.

A declaration that is no longer needed fails: it has to go.
"""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from support.command_line import EXAMPLES
from support.golden import FOLDER, UNPROVED, cases_of
from support.sharded_jax import jax_program_names, sharded_jax_program


@pytest.mark.parametrize(
    ("name", "trials"), [("mlp_named", 4), ("mlp_train", 4), ("transformer_train", 1), ("transformer_scan_train", 1)]
)
def test_examples_are_equal(name: str, trials: int) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    verdict = hloom.prove(module, hloom.partition(module), trials)
    assert verdict.outcome == "equal", verdict


def test_all_examples_are_proved() -> None:
    (marker,) = test_examples_are_equal.pytestmark  # pyright: ignore
    assert {name for name, _ in marker.args[1]} == {path.stem for path in EXAMPLES.glob("*.hlo")}


@pytest.mark.share(3)
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.hlo")), ids=lambda f: f.stem)
def test_golden_cases_are_equal(file: Path) -> None:
    _check_golden(file, 1)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.hlo")), ids=lambda f: f.stem)
def test_golden_cases_are_equal_in_more_trials(file: Path) -> None:
    _check_golden(file, 8)


def _check_golden(file: Path, trials: int) -> None:
    unproved: list[str] = []
    for case in cases_of(file):
        if any(verb.split()[0] == "EVAL" for verb in case.verbs):
            module = hloom.parse(case.text)
            verdict = hloom.prove(module, hloom.partition(module), trials)
            assert verdict.outcome != "differs", f"{case.name}: {verdict}"
            unproved += [f"{case.name}: {verdict}"] if verdict.outcome == "unproved" else []
    assert len(unproved) == UNPROVED.get(file.stem, 0), unproved


@pytest.mark.share(4)  # others are run (`test_jax_programs`)
@pytest.mark.parametrize("name", jax_program_names())
def test_jax_programs_are_equal(name: str) -> None:
    """With random shardings, unless the program has its own."""
    pytest.importorskip("jax")
    module = sharded_jax_program(name)
    verdict = hloom.prove(module, hloom.partition(module), trials=2)
    assert verdict.agrees, verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", jax_program_names())
def test_jax_programs_with_other_shardings_are_equal(name: str, seed: int) -> None:
    pytest.importorskip("jax")
    module = sharded_jax_program(name, seed)
    verdict = hloom.prove(module, hloom.partition(module))
    assert verdict.agrees, verdict
