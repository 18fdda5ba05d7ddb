"""Triangular systems, Cholesky factors and LU factors of stacks of matrices, in blocks.

A matrix is halved until a loop over its rows or columns is short; BLAS multiplies the blocks. Each step of such a loop
takes all matrices of the stack. How a matrix is halved depends on its own size only, so that a part of a stack is
computed as the whole is. See Toledo, Locality of Reference in LU Decomposition with Partial Pivoting, 1997.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.linalg import LinAlgError

np: Any = numpy  # whose annotations are too loose here

Stack = Any
_SHORT = 16  # rows or columns of a loop: with more, it takes longer than the products of halves
_WHOLE = 192  # rows of a matrix in single precision: with more, halves are faster than numpy, which converts to double


def adjoint(x: Stack) -> Stack:
    return np.swapaxes(x, -1, -2).conj()


def solve_triangular(a: Stack, b: Stack, lower: bool, unit_diagonal: bool = False) -> Stack:
    """Solves tril(a) x = b for x, or triu(a) x = b without `lower`, with ones on the diagonal if `unit_diagonal`."""
    x = np.array(b, order="C")
    _solve(a, x, lower, unit_diagonal)
    return x


def _solve(a: Stack, x: Stack, lower: bool, unit_diagonal: bool) -> None:
    """Replaces the right side in x by the solution."""
    n = a.shape[-1]
    if n > _SHORT:
        halves = slice(0, n // 2), slice(n // 2, n)
        known, rest = halves if lower else halves[::-1]
        _solve(a[..., known, known], x[..., known, :], lower, unit_diagonal)
        x[..., rest, :] -= np.matmul(a[..., rest, known], x[..., known, :])
        _solve(a[..., rest, rest], x[..., rest, :], lower, unit_diagonal)
        return
    for i in range(n) if lower else reversed(range(n)):
        known, row = slice(0, i) if lower else slice(i + 1, n), x[..., i : i + 1, :]
        row -= np.matmul(a[..., i : i + 1, known], x[..., known, :])
        if not unit_diagonal:
            row /= a[..., i : i + 1, i : i + 1]


def cholesky(a: Stack) -> tuple[Stack, Stack]:
    """Returns lower triangular L with a = L L^H, reading the lower triangle only, and 0 or the size of the first
    leading block of a that is not positive definite. Then L is NaN.
    """
    factor, info = _cholesky(a)
    factor[info > 0] = np.nan
    return factor, info


def _cholesky(a: Stack) -> tuple[Stack, Stack]:
    n = a.shape[-1]
    if n <= _WHOLE or a.dtype == np.result_type(a, np.float64):
        try:
            return np.linalg.cholesky(a), np.zeros(a.shape[:-2], np.int32)
        except LinAlgError:  # it does not say for which matrix
            if n <= _SHORT:
                return _cholesky_by_columns(a)
    half, factor = n // 2, np.zeros_like(a, order="C")
    first, info = _cholesky(a[..., :half, :half])
    below = adjoint(solve_triangular(first, adjoint(a[..., half:, :half]), lower=True))
    last, later = _cholesky(a[..., half:, half:] - np.matmul(below, adjoint(below)))
    factor[..., :half, :half], factor[..., half:, :half], factor[..., half:, half:] = first, below, last
    return factor, np.where((info == 0) & (later > 0), later + half, info)


def _cholesky_by_columns(a: Stack) -> tuple[Stack, Stack]:
    x, info = np.tril(a).astype(np.result_type(a, np.float64)), np.zeros(a.shape[:-2], np.int32)
    for i in range(a.shape[-1]):
        pivot = x[..., i, i].real
        fails = pivot <= 0
        info[fails & (info == 0)] = i + 1
        x[..., i, i] = root = np.sqrt(np.where(fails, np.nan, pivot))
        column = x[..., i + 1 :, i, None]
        column /= root[..., None, None]
        x[..., i + 1 :, i + 1 :] -= np.tril(np.matmul(column, adjoint(column)))
    return x.astype(a.dtype), info


def lu(a: Stack) -> tuple[Stack, Stack]:
    """Returns L (unit diagonal) and U of matrices [batch, m, n] with rows swapped, in one matrix, and for each row its
    partner in the swaps, which are made in order.
    """
    a = np.array(a, order="C")
    partners = np.zeros((len(a), min(a.shape[1:])), np.int32)
    _lu(a, partners)
    return a, partners


def _lu(a: Stack, partners: Stack) -> Stack:
    """Replaces a by its factors, fills in `partners`, and returns the order of rows [batch, m] after all swaps."""
    half = partners.shape[1] // 2
    if partners.shape[1] <= _SHORT:
        return _lu_by_columns(a, partners)
    left, right = a[:, :, :half], a[:, :, half:]
    order = _lu(left, partners[:, :half])
    right[...] = _rows(right, order)
    top, bottom = right[:, :half], right[:, half:]
    _solve(left[:, :half], top, lower=True, unit_diagonal=True)
    bottom -= np.matmul(left[:, half:], top)
    later = _lu(bottom, partners[:, half:])
    partners[:, half:] += half
    for x in (left, order):
        x[:, half:] = _rows(x[:, half:], later)
    return order


def _rows(x: Stack, order: Stack) -> Stack:
    return x[np.arange(len(x))[:, None], order]


def _lu_by_columns(a: Stack, partners: Stack) -> Stack:
    # Columns come first and the stack last here, since numpy is fast along long last dimensions.
    x, size = np.ascontiguousarray(a.transpose(2, 1, 0)), len(a)
    flat, order = x.reshape(a.shape[2], a.shape[1] * size), np.repeat(np.arange(a.shape[1]), size)
    for i in range(partners.shape[1]):
        partners[:, i] = chosen = i + magnitude(x[i, i:]).argmax(0)
        here, there = slice(i * size, (i + 1) * size), chosen * size + np.arange(size)
        for rows in (flat, order):
            found = rows[..., there]
            rows[..., there] = rows[..., here]
            rows[..., here] = found
        pivot, column = x[i, i], x[i, i + 1 :]
        np.divide(column, pivot, out=column, where=pivot != 0)  # if it is 0, the column is
        x[i + 1 :, i + 1 :] -= column * x[i + 1 :, i, None]
    a[...] = x.transpose(2, 1, 0)
    return order.reshape(a.shape[1], size).T


def magnitude(x: Any) -> Any:
    """Returns the magnitude by which LAPACK chooses pivots: |re| + |im| for complex numbers."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)
