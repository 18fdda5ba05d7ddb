"""Everything that the other tests run, in both backends: samples of every op with every type, golden cases, JAX
programs. Integers agree to the bit, floats as closely as each op must agree with XLA.

Fused programs are proved equal to those before, golden cases and JAX programs alike.
"""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.ir.graph.module import Module
from hloom.runtime.evaluator import evaluate
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.simulator import simulate
from ops.oracle import compared_as, input_kind, mismatch, random_inputs
from ops.test_samples import SAMPLES
from ops.typed_programs import TEMPLATES, accepted
from support.command_line import EXAMPLES
from support.compare import compare
from support.golden import FOLDER, UNPROVED, cases_of
from support.op_samples import few
from support.sharded_jax import jax_program_names, sharded_jax_program

FUSE = Backend("native").prepared

# The outputs of JAX programs that a proof only tests, fused or not, as no run on terms shows the decisions that they
# hang on. All others are shown.
TESTED = {
    "argmax_and_median": (0, 1),  # the least of pairs, a sort
    "batched_cholesky_inverse_and_determinant": (1,),  # pivots
    "bitcasts": (0,),  # bits of floats as integers
    "categorical_and_dropout": (0,),  # the greatest of pairs
    "complex_numbers": (0,),  # exp compares its argument
    "cond": (0,),  # a comparison chooses the branch
    "eigenvectors_put_together": (2,),  # whether the solver converged
    "gather_and_scatter": (2,),  # the greatest of updates
    "gradient_through_a_solution": (0,),  # pivots
    "lu_with_permutation": (2,),  # pivots
    "multivariate_normal": (0,),  # erf_inv compares its argument
    "pooling_gradient": (0,),  # the element of a window that is greatest
    "random_bit_generator": (0,),  # a maximum
    "schur_and_matrix_functions": (0, 1, 2),  # whether the solver converged, branches
    "search_sorted": (0,),  # comparisons that are counted
    "solve_with_lu": (0,),  # pivots
    "sort": (0, 1),  # integers in order
    "sort_by_key": (0, 1),
    "sort_of_floats_with_nan": (0,),
    "switch": (0,),  # an input chooses the branch
    "threefry": (0, 2),  # erf_inv compares its argument, an input is the seed
    "top_k": (0, 1),  # a sort
    "unique_and_histogram": (0,),  # a sort of integers
    "while_loop": (0, 1),  # an input is the number of trips
}
ON_TERMS = ("cumulative_sums", "fori_loop_with_updates", "pooling", "tridiagonal_solve")  # whose decisions are shown


def is_alone(module: Module) -> bool:
    """Whether the program runs on one device, and on arrays alone."""
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    return module.num_partitions == module.replica_count == 1 and all(leaf.element.numpy for leaf in leaves)


def check_one_device(opcode: str, text: str, seeds: int = 1) -> None:
    """Compares a program of one op on one device, on as many random inputs."""
    module = hloom.parse(text)
    shapes = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    fused = FUSE(module)
    for seed in range(seeds):
        inputs = random_inputs(shapes, seed, input_kind(text))
        with np.errstate(all="ignore"):
            expected = evaluate(module, inputs)
            results = evaluate(fused, inputs, NativeKernels())
        assert len(results) == len(expected)
        for mine, theirs in zip(results, expected, strict=True):
            wrong = mismatch(np.asarray(mine), np.asarray(theirs), compared_as(text, opcode))
            assert wrong is None, f"{wrong}\nin\n{text}"


@pytest.mark.share(4)
@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_samples(opcode: str) -> None:
    """A few of element-wise ops and conversions, which `test_native` runs with all types."""
    for text in few(opcode, SAMPLES[opcode], 2):
        if is_alone(hloom.parse(text)):
            check_one_device(opcode, text)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_samples_on_more_inputs(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        if is_alone(hloom.parse(text)):
            check_one_device(opcode, text, seeds=3)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", sorted(TEMPLATES))
def test_every_type(opcode: str) -> None:
    for programs in accepted(opcode).values():
        for program in programs:
            if is_alone(program.module):
                check_one_device(opcode, program.text, seeds=2)


def check_devices(module: Module, name: str, trials: int | None = 1) -> hloom.Verdict:
    """Compares the fused program of one device and of all, with poisoned padding. Returns the verdict of its proof."""
    local = hloom.partition(module)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    with np.errstate(all="ignore"):
        one, all_devices = evaluate(module, inputs), simulate(local, inputs)
        pairs = [(evaluate(FUSE(module), inputs, NativeKernels()), one),
                 (simulate(FUSE(local), inputs, True, NativeKernels()), all_devices)]  # fmt: skip
    for found, wanted in pairs:
        same = compare(found, wanted)
        assert same.equal, f"{name}: {same}"
    verdict = hloom.prove(module, FUSE(local), trials)
    assert verdict.outcome != "differs", f"{name}: {verdict}"
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.hlo")), ids=lambda f: f.stem)
def test_golden_cases(file: Path) -> None:
    unproved = 0
    for case in cases_of(file):
        if any(verb.split()[0] == "EVAL" for verb in case.verbs):
            unproved += check_devices(hloom.parse(case.text), case.name).outcome == "unproved"
    assert unproved == UNPROVED.get(file.stem, 0)


def assert_shown(name: str, verdict: hloom.Verdict) -> None:
    """Checks that a proof of a JAX program shows all outputs but those in `TESTED`."""
    tested = TESTED.get(name, ())
    assert verdict.outcome == ("agrees" if tested else "equal"), verdict
    assert tuple(t.output for t in verdict.tested) == tested, verdict


@pytest.mark.parametrize("name", ON_TERMS)
def test_a_run_on_terms_shows(name: str) -> None:
    pytest.importorskip("jax")
    module = sharded_jax_program(name, 0)
    assert_shown(name, hloom.prove(module, hloom.partition(module), 1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", jax_program_names())
def test_jax_programs(name: str, seed: int) -> None:
    pytest.importorskip("jax")
    assert_shown(name, check_devices(sharded_jax_program(name, seed), name, trials=None))


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.hlo")), ids=lambda f: f.stem)
def test_examples(file: Path) -> None:
    assert check_devices(hloom.load(file), file.stem).is_equal
