"""Programs from JAX: each is read, printed so that XLA reads the same, and gives XLA's numbers.

All are evaluated; programs in `MANUAL` are partitioned and run on simulated devices as well.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import hloom
import numpy as np
import pytest
from programs.jax_programs import PROGRAMS, Program, text_of

jax: Any = pytest.importorskip("jax")
importlib.import_module("programs.linear_algebra_programs")  # adds to PROGRAMS

# Programs with manual regions.
MANUAL = {"shard_map_collectives"}


@cache
def lowered(name: str) -> tuple[Program, str]:
    program = PROGRAMS[name]()
    return program, text_of(program)


def canonical(text: str) -> str:
    """XLA's own print of a text."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return hlo.hlo_module_from_text(text).to_string(options)


def inputs_of(program: Program) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(program[1])]


def test_there_are_many_programs() -> None:
    assert len(PROGRAMS) >= 30
    assert set(PROGRAMS) >= MANUAL


@pytest.mark.share(3)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name: str) -> None:
    program, text = lowered(name)
    module = hloom.parse(text)
    printed = module.to_text()
    assert hloom.parse(printed).to_text() == printed
    assert canonical(printed) == canonical(text)
    function, arguments = program
    inputs = inputs_of(program)
    theirs = [np.asarray(leaf) for leaf in jax.tree.leaves(function(*arguments))]
    check(hloom.evaluate(module, inputs), theirs)
    if name in MANUAL:
        check(hloom.simulate(hloom.partition(module), inputs), theirs)


def check(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"output {number}"
        if a.dtype.kind in "biu":
            assert np.array_equal(a, b), f"output {number}"
        else:
            wide: Any = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=2e-5, atol=2e-5, err_msg=f"output {number}")
