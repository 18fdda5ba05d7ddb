"""Every example, golden case and JAX program is proved, but for those declared here as not proved yet.

A declaration that is no longer needed fails: it has to go.
"""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from support.command_line import EXAMPLES
from support.golden import FOLDER, cases_of
from support.sharded_jax import jax_program_names, sharded_jax_program

# JAX programs that hold an op that no proof covers.
UNPROVED_JAX = {
    "bitcasts": "bitcast-convert",
    "categorical_and_dropout": "bitcast-convert",
    "complex_numbers": "complex",
    "complex_qr_and_adjoint_solve": "custom-call",
    "eigenvectors_put_together": "complex",
    "fft": "fft",
    "multivariate_normal": "bitcast-convert",
    "random_bit_generator": "bitcast-convert",
    "schur_and_matrix_functions": "complex",
    "threefry": "bitcast-convert",
}
# The number of golden cases that are evaluated and not proved, by file: ops that no proof covers, and results that are
# undefined in every trial.
UNPROVED_GOLDEN = {"found": 4, "halo": 1, "indexed": 7, "public_bugs": 2, "single": 10, "spmd": 1}


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
    assert len(unproved) == UNPROVED_GOLDEN.get(file.stem, 0), unproved


@pytest.mark.parametrize("name", jax_program_names())
def test_jax_programs_are_equal(name: str) -> None:
    """With random shardings, unless the program has its own."""
    pytest.importorskip("jax")
    module = sharded_jax_program(name)
    verdict = hloom.prove(module, hloom.partition(module), trials=2)
    assert verdict.outcome == ("unproved" if name in UNPROVED_JAX else "equal"), verdict
    assert UNPROVED_JAX.get(name, "") in {"", *(u.opcode for u in verdict.uncovered)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [n for n in jax_program_names() if n not in UNPROVED_JAX])
def test_jax_programs_with_other_shardings_are_equal(name: str, seed: int) -> None:
    pytest.importorskip("jax")
    module = sharded_jax_program(name, seed)
    verdict = hloom.prove(module, hloom.partition(module))
    assert verdict.outcome == "equal", verdict
