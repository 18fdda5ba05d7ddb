"""cholesky and triangular-solve: they solve what they say, read one triangle only, and say what does not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.linear_algebra import Transposition
from hloom.ir.ops.numerics import numpy_type
from ops.build import rule, run, use


@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_of_a_batch(lower: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 4))
    matrix = x @ np.swapaxes(x, -1, -2) + np.eye(4)
    unread = (np.triu if lower else np.tril)(np.full((4, 4), 7.0), 1 if lower else -1)
    call = use("cholesky", "f64[3,4,4]", lower=lower)
    factor = run("cholesky", call, (np.tril if lower else np.triu)(matrix) + unread)
    other = np.swapaxes(factor, -1, -2)
    np.testing.assert_allclose(factor @ other if lower else other @ factor, matrix, rtol=1e-12)
    assert (factor * (unread != 0) == 0).all()


def test_cholesky_gives_nan_for_the_matrices_that_have_none() -> None:
    x = np.stack([np.eye(2), np.diag([1.0, -1.0]), 4 * np.eye(2)]).astype(np.float32)
    found = run("cholesky", use("cholesky", "f32[3,2,2]", lower=True), x)
    np.testing.assert_array_equal(found[0], np.eye(2))
    np.testing.assert_array_equal(found[2], 2 * np.eye(2))
    assert np.isnan(found[1]).all()


_CHOICES = list(itertools.product([False, True], [False, True], [False, True], Transposition))


@pytest.mark.parametrize(("left", "lower", "unit", "transpose"), _CHOICES)
def test_triangular_solve(left: bool, lower: bool, unit: bool, transpose: Transposition) -> None:
    rng = np.random.default_rng(1)

    def numbers(*dims: int) -> Any:
        return rng.normal(size=dims) + 1j * rng.normal(size=dims)

    a, b = numbers(2, 3, 3) + 4 * np.eye(3), numbers(*((2, 3, 5) if left else (2, 5, 3)))
    call = use("triangular-solve", f"c128[2,3,3] c128[{','.join(map(str, b.shape))}]", left_side=left, lower=lower,
               unit_diagonal=unit, transpose_a=transpose)  # fmt: skip
    x = run("triangular-solve", call, a, b)
    matrix = np.tril(a, -1) if lower else np.triu(a, 1)
    matrix = matrix + (np.eye(3) if unit else a * np.eye(3))
    if transpose is not Transposition.NONE:
        matrix = np.swapaxes(matrix, -1, -2)
    if transpose is Transposition.ADJOINT:
        matrix = np.conj(matrix)
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("element", "tolerance"), [("bf16", 2e-2), ("f16", 2e-3), ("f32", 1e-5)])
def test_large_systems_of_short_floats(element: str, tolerance: float) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 200, 200))
    call = use("cholesky", f"{element}[2,200,200]", lower=True)
    kind = numpy_type(call.shape.element)
    matrix = (x @ np.swapaxes(x, -1, -2) / 200 + np.eye(200)).astype(kind)
    factor = run("cholesky", call, matrix)
    assert factor.dtype == kind
    np.testing.assert_allclose(factor.astype("f8"), np.linalg.cholesky(matrix.astype("f8")), atol=tolerance)
    b = rng.normal(size=(2, 200, 3)).astype(kind)
    solve = use("triangular-solve", f"{element}[2,200,200] {element}[2,200,3]", left_side=True, lower=True)
    found = run("triangular-solve", solve, factor, b)
    assert found.dtype == kind
    lower = np.tril(factor.astype("f8"))
    np.testing.assert_allclose(lower @ found.astype("f8"), b.astype("f8"), atol=5 * tolerance)


def test_rules() -> None:
    whole = " need_replication={j, k}"
    assert rule("cholesky", use("cholesky", "f32[2,3,3]")) == "([i j k]) -> [i j k] {i=2, j=3, k=3}" + whole
    call = use("triangular-solve", "f32[2,3,3] f32[2,3,5]", left_side=True)
    assert rule("triangular-solve", call) == "([i j k], [i j l]) -> [i j l] {i=2, j=3, k=3, l=5}" + whole
    call = use("triangular-solve", "f32[2,3,3] f32[2,5,3]")
    assert rule("triangular-solve", call) == "([i j k], [i l k]) -> [i l k] {i=2, j=3, k=3, l=5}" + whole


@pytest.mark.parametrize(
    ("opcode", "operands", "message"),
    [
        ("cholesky", "f32[3,4]", "last two dimensions must be equal, the matrix is f32[3,4]"),
        ("cholesky", "f32[3]", "last two dimensions must be equal, the matrix is f32[3]"),
        ("cholesky", "s32[3,3]", "must have float or complex elements"),
        ("triangular-solve", "f32[3,3] f32[3,4]", "f32[3,4] must have 3 columns, as f32[3,3] has"),
        ("triangular-solve", "f32[2,3,3] f32[3,3]", "batch dimensions differ"),
        ("triangular-solve", "f32[3,3] f64[3,3]", "element types differ"),
    ],
)
def test_refuses(opcode: str, operands: str, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use(opcode, operands)
    assert message in error.value.message
