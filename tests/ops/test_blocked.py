"""Blocked algorithms on stacks of matrices: sizes around the borders of blocks, what is not read, and what fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.ir.ops.blocked import adjoint, cholesky, lu, magnitude, solve_triangular
from hloom.ir.ops.calls.householder import multiply, product

Array = np.ndarray[Any, Any]
TYPES = ("f4", "f8", "c8", "c16")


def numbers(type: str, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=dims) + (1j * rng.normal(size=dims) if type[0] == "c" else 0)).astype(type)


def positive(type: str, *dims: int) -> Array:
    x = numbers(type, *dims)
    return x @ adjoint(x) / dims[-1] + np.eye(dims[-1], dtype=type)


def near(found: Array, wanted: Array) -> None:
    assert found.dtype == wanted.dtype
    tolerance = 200 * float(np.finfo(found.dtype).eps) * float(np.max(np.abs(wanted), initial=1))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 2, 16, 17, 32, 33, 50])
@pytest.mark.parametrize("lower", [True, False])
def test_triangular_systems(type: str, n: int, lower: bool) -> None:
    for columns, unit in ((1, False), (7, True), (0, False)):
        a = numbers(type, 3, n, n) / n + 2 * np.eye(n, dtype=type)
        unread = np.triu(np.full((n, n), np.nan), 0 if unit else 1)
        kept = np.tril(a, -1 if unit else 0) if lower else np.triu(a, 1 if unit else 0)
        b = numbers(type, 3, n, columns, seed=1)
        given = a + (unread if lower else unread.T).astype(type)
        x = solve_triangular(given, b, lower, unit)
        near((kept + np.eye(n, dtype=type) if unit else kept) @ x, b)


def test_a_zero_on_the_diagonal_of_a_triangle_spoils_that_system_alone() -> None:
    a = np.stack([np.eye(20), np.eye(20)])
    a[0, 18, 18] = 0
    with np.errstate(all="ignore"):
        x = solve_triangular(a, np.ones((2, 20, 1)), lower=True)
    assert np.isinf(x[0, 18])
    np.testing.assert_array_equal(x[0, :18], np.ones((18, 1)))
    np.testing.assert_array_equal(x[1], np.ones((20, 1)))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("dims", [(1, 1), (3, 3), (16, 16), (17, 17), (33, 40), (40, 33), (70, 5), (5, 70), (97, 97)])
def test_lu_factors(type: str, dims: tuple[int, int]) -> None:
    a = numbers(type, 3, *dims)
    factors, partners = lu(a)
    k = min(dims)
    assert partners.shape == (3, k)
    swapped = a.copy()
    for matrix, row in zip(swapped, partners, strict=True):
        for i, partner in enumerate(row):
            assert partner >= i
            matrix[[i, partner]] = matrix[[partner, i]]
    lower = np.tril(factors[:, :, :k], -1) + np.eye(dims[0], k, dtype=type)
    assert magnitude(lower).max() < 2.01  # |re| + |im| of a quotient; of reals it is 1
    near(lower @ np.triu(factors[:, :k]), swapped)
    near(lu(a[1:2])[0][0], factors[1])
    np.testing.assert_array_equal(lu(a[1:2])[1][0], partners[1])


def test_lu_factors_of_singular_matrices() -> None:
    a = numbers("f8", 4, 40, 40)
    a[1, :, 30] = 0  # a zero pivot
    a[2, 5] = a[2, 9]  # equal rows
    a[3] = 0
    factors, partners = lu(a)
    assert (np.diagonal(factors[1])[30], partners[1, 30]) == (0, 30)
    assert abs(np.linalg.det(np.triu(factors[2]))) < 1e-9 * abs(np.linalg.det(a[0]))
    assert not factors[3].any()
    np.testing.assert_array_equal(partners[3], np.arange(40))
    assert np.isfinite(factors).all()
    a[1, 20, 20] = np.nan
    spoilt, _ = lu(a)
    assert np.isnan(spoilt[1]).any()
    assert np.array_equal(spoilt[[0, 2, 3]], factors[[0, 2, 3]])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 6, 192, 193, 250])
def test_cholesky_factors(type: str, n: int) -> None:
    a = positive(type, 2, n, n)
    factor, info = cholesky(np.where(np.tri(n, dtype=bool), a, np.nan).astype(type))
    near(factor @ adjoint(factor), a)
    assert not np.triu(factor, 1).any()
    assert info.tolist() == [0, 0]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 8, 250])
def test_the_first_block_that_is_not_positive_is_found(type: str, n: int) -> None:
    first, last = n // 3, n - 1
    a = np.stack([positive(type, n, n)] * 4)
    a[1, first, first] = -1
    a[2, last, last] = 0
    a[3, first, first] = a[3, last, last] = -1
    with np.errstate(invalid="ignore"):
        factor, info = cholesky(a)
    assert info.tolist() == [0, first + 1, last + 1, first + 1]
    assert np.isnan(factor[1:]).all()
    near(factor[0], cholesky(a[:1])[0][0])


def test_a_number_that_is_none_is_no_failure_of_cholesky() -> None:
    a = np.stack([np.eye(4), np.eye(4), -np.eye(4)])
    a[1, 1, 1] = np.nan
    factor, info = cholesky(a)
    assert info.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(factor[0], np.eye(4))
    after = np.tri(4, dtype=bool) & (np.arange(4) > 0)
    np.testing.assert_array_equal(np.isnan(factor[1]), after)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (48, 48), (60, 49), (100, 100), (120, 97)])
def test_products_of_reflectors(type: str, rows: int, columns: int) -> None:
    a, c = numbers(type, 2, rows, columns), numbers(type, 2, rows, 3, seed=1)
    packed, taus = np.linalg.qr(a, mode="raw")
    packed = np.swapaxes(packed, -1, -2)
    q = np.linalg.qr(a, mode="complete")[0]
    near(product(packed, taus), q[..., :columns])
    near(product(np.concatenate([packed, np.zeros((2, rows, rows - columns), type)], -1), taus), q)
    near(multiply(packed, taus, c, inverse=False), q @ c)
    near(multiply(packed, taus, c, inverse=True), adjoint(q) @ c)


def test_fewer_reflectors_than_columns() -> None:
    a = numbers("f8", 60, 55)
    packed, taus = np.linalg.qr(a, mode="raw")
    taus[50:] = 0  # reflectors that do nothing
    np.testing.assert_allclose(product(packed.T, taus), product(packed.T, taus[:50]), atol=1e-14)


def test_no_matrices_and_no_rows() -> None:
    for stack, n in ((0, 3), (0, 250), (2, 0)):
        a = np.zeros((stack, n, n))
        factors, partners = lu(a)
        assert (factors.shape, partners.shape) == (a.shape, a.shape[:2])
        assert solve_triangular(a, a, lower=True).shape == a.shape
        factor, info = cholesky(a.astype("f4"))
        assert (factor.shape, info.shape) == (a.shape, (stack,))
        assert product(a, np.zeros((stack, n))).shape == a.shape
