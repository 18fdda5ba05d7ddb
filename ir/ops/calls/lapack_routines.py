"""Routines of LAPACK, by numpy, in blocks, or by textbook algorithms.

Each takes stacks of matrices, arrays [batch, ..] which it must not modify, and options (`uplo="L"`, ..). Those written
for one matrix in double precision become routines on stacks by `each`. A routine returns a tuple of arrays in LAPACK's
packing: Householder vectors below the diagonal, pivots counted from 1. Routines with an `info` return it last: 0, or
LAPACK's error code. They raise `numpy.linalg.LinAlgError` if they do not converge for one matrix of the stack, and
ValueError for incompatible sizes. None is a result that LAPACK leaves undefined.

A reflector is H = I - tau v v^H with v[0] = 1 and LAPACK's sign, so that packed factors agree with LAPACK's.
Eigenvectors and singular vectors are unique only up to a factor of modulus 1, a Schur form up to the order of the
eigenvalues, and need not agree. See the LAPACK Users' Guide and Golub and Van Loan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from ..blocked import adjoint, cholesky, lu, magnitude
from .householder import multiply, product, reflect_left, reflector, schur

np: Any = numpy  # whose annotations are too loose here

Matrix = Any
Stack = Any
Result = tuple[Any, ...]


def each(routine: Callable[..., Result]) -> Callable[..., Result]:
    """Returns a routine on stacks that computes matrix by matrix, in double precision, with a routine on matrices."""

    def on_stacks(*stacks: Any, **options: Any) -> Result:
        found = [routine(*matrices, **options) for matrices in zip(*map(_wide, stacks), strict=True)]
        return tuple(None if part[0] is None else np.stack(part) for part in zip(*found, strict=True))

    return on_stacks


def _wide(x: Any) -> Any:
    """Converts floats to double precision; integers stay unchanged."""
    return x if x.dtype.kind == "i" else x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def potrf(a: Stack, uplo: str) -> Result:
    """Returns a with the Cholesky factor in one triangle, the only one read; the other triangle stays unchanged."""
    lower, triangle = uplo == "L", np.tri(a.shape[-1], dtype=bool)
    factor, info = cholesky(a if lower else adjoint(a))
    return np.where(triangle, factor, a) if lower else np.where(triangle.T, adjoint(factor), a), info


def getrf(a: Stack) -> Result:
    """Returns L (unit diagonal) and U of a with rows swapped, in one matrix, and row i's partner in the i-th swap."""
    factors, partners = lu(a)
    zero = np.diagonal(factors, 0, -2, -1) == 0
    return factors, partners + 1, np.where(zero.any(-1), np.argmax(zero, -1) + 1, 0)


def geqrf(a: Stack) -> Result:
    """Returns R, with the vectors of the reflectors whose product is Q below it, and their factors tau."""
    packed, taus = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2), taus


@each
def geqp3(a: Matrix, fixed: Any) -> Result:
    """Returns geqrf of a with columns permuted, the largest remaining one first; those marked in `fixed` come first."""
    a, columns = a.copy(), np.arange(1, a.shape[1] + 1, dtype=np.int32)
    taus = np.zeros(min(a.shape), a.dtype)
    first = [int(n) for n in np.flatnonzero(fixed)]
    for i in range(a.shape[1]):
        if i < len(first):
            chosen = first[i]
        elif i < len(taus):
            chosen = i + int(np.argmax(np.linalg.norm(a[i:, i:], axis=0)))
        else:
            break
        a[:, [i, chosen]] = a[:, [chosen, i]]
        columns[[i, chosen]] = columns[[chosen, i]]
        if i < len(taus):
            v, taus[i], head = reflector(a[i:, i])
            reflect_left(a[i:, i + 1 :], v, taus[i].conjugate())
            a[i, i], a[i + 1 :, i] = head, v[1:]
    return a, columns, taus


def orgqr(a: Stack, taus: Stack) -> Result:
    """Returns the first columns of the product of the reflectors packed by geqrf."""
    count, (rows, columns) = taus.shape[-1], a.shape[-2:]
    if not count <= columns <= rows:
        raise ValueError(f"{count} reflectors, {columns} columns, {rows} rows")
    return (product(a, taus),)


def ormqr(a: Stack, taus: Stack, c: Stack, left: bool, transpose: bool) -> Result:
    """Returns Q c or c Q, where Q is the product of the reflectors packed by geqrf, or its adjoint."""
    if taus.shape[-1] > a.shape[-2]:
        raise ValueError(f"{taus.shape[-1]} reflectors, {a.shape[-2]} rows")
    if left:
        return (multiply(a, taus, c, bool(transpose)),)
    return (adjoint(multiply(a, taus, adjoint(c), not transpose)),)


def syevd(a: Stack, mode: str, uplo: str) -> Result:
    """Returns eigenvectors and ascending eigenvalues of a Hermitian matrix, reading one triangle."""
    values, vectors = np.linalg.eigh(a, uplo)
    return (vectors if mode == "V" else None), values, 0


def gesdd(a: Stack, mode: str) -> Result:
    """Returns descending singular values and, by `mode`, all singular vectors, as many as values, or none."""
    if mode == "N":
        return None, np.linalg.svd(a, compute_uv=False), None, None, 0
    u, values, vt = np.linalg.svd(a, full_matrices=mode == "A")
    return None, values, u, vt, 0


@each
def geev(a: Matrix, compute_left: str, compute_right: str) -> Result:
    """Returns eigenvalues and left and right eigenvectors; real and imaginary parts apart for real matrices."""
    values, right = np.linalg.eig(a)
    left = _left_vectors(a, values) if compute_left == "V" else None
    parts = (values,) if np.iscomplexobj(a) else (values.real, values.imag)
    return *parts, left, right if compute_right == "V" else None, 0


def _left_vectors(a: Matrix, values: Any) -> Matrix:
    """Returns the eigenvectors of a^H, in the order of the eigenvalues of a."""
    found, vectors = np.linalg.eig(a.conj().T)
    free = list(range(len(values)))
    order = [free.pop(int(np.argmin(np.abs(found[free].conj() - value)))) for value in values]
    return vectors[:, order]


@each
def gehrd(a: Matrix, low: int, high: int) -> Result:
    """Returns the Hessenberg form of a, with the reflectors of the reduction below it, in rows low to high."""
    if not 1 <= low <= high <= len(a):
        raise ValueError(f"rows {low} to {high} of {len(a)}")
    return *_hessenberg(a, low, high), 0


def _hessenberg(a: Matrix, low: int, high: int) -> tuple[Matrix, Any]:
    a, taus = a.copy(), np.zeros(len(a) - 1, a.dtype)
    for i in range(low - 1, high - 1):
        v, taus[i], head = reflector(a[i + 1 : high, i])
        reflect_left(a[:high, i + 1 : high].T, v.conj(), taus[i])
        reflect_left(a[i + 1 : high, i + 1 :], v, taus[i].conjugate())
        a[i + 1, i], a[i + 2 : high, i] = head, v[1:]
    return a, taus


@each
def gees(a: Matrix, mode: str, sort: str) -> Result:
    """Returns the Schur form, its vectors if requested, the eigenvalues (in parts for real matrices), and the number of
    sorted ones, which is 0 because JAX requests no sorting.
    """
    form, vectors = schur(a)
    values = np.diag(form).astype(complex)
    if np.iscomplexobj(a):
        return form, vectors, values, 0, 0
    for i in np.flatnonzero(np.diag(form, -1)):
        apart = np.sqrt(complex(form[i, i + 1] * form[i + 1, i]))
        values[[i, i + 1]] = values[i] + apart, values[i] - apart
    return form, vectors if mode == "V" else None, values.real, values.imag, 0, 0


@each
def sytrd(a: Matrix, uplo: str) -> Result:
    """Returns the tridiagonal form of a Hermitian matrix, packed like gehrd into the one triangle that is read, its
    diagonal and off-diagonal, and the factors of the reflectors.
    """
    turned = a if uplo == "L" else a[::-1, ::-1]
    lower = np.tril(turned, -1)
    full = lower + lower.conj().T + np.diag(np.diag(turned).real)
    packed, taus = _hessenberg(full.astype(a.dtype), 1, len(a))
    diagonal, beside = np.diag(packed).real, np.diag(packed, -1).real
    packed = np.tril(packed) + np.triu(turned, 1)
    if uplo == "L":
        return packed, diagonal, beside, taus, 0
    return packed[::-1, ::-1], diagonal[::-1], beside[::-1], taus[::-1], 0


def gtsv(below: Stack, diagonal: Stack, above: Stack, b: Stack) -> Result:
    """Returns the second, main and first diagonal of the factor U, and the solution of tridiagonal systems."""
    rows = _eliminate(below, diagonal, above, b)
    main, first, second = rows[:, 0].T, rows[:, 1].T, rows[:, 2].T
    zero = main == 0
    fails = zero.any(-1)
    x = _substitute(rows)
    for part, value in ((main, 0), (first, 0), (second, 0), (x, np.nan)):
        part[fails] = value
    return np.roll(second, 1, -1), main, first, x, np.where(fails, np.argmax(zero, -1) + 1, 0)


def solve_perturbed(below: Stack, diagonal: Stack, above: Stack, b: Stack, epsilon: float, tiny: float) -> Result:
    """Solves like gtsv, but replaces too small pivots by epsilon times the largest element of U.

    JAX chooses another magnitude, so solutions of singular systems agree in direction only.
    """
    rows = _eliminate(below, diagonal, above, b)
    least = np.maximum(epsilon * np.abs(rows[:, :3]).max((0, 1)), tiny)
    pivots = rows[:, 0]
    rows[:, 0] = np.where(np.abs(pivots) <= tiny, np.copysign(least, pivots.real), pivots)
    return (_substitute(rows),)


def _eliminate(below: Stack, diagonal: Stack, above: Stack, b: Stack) -> Stack:
    """Returns rows [n, 3 + columns, batch], after elimination with swaps: of U's main, first and second diagonal, and
    of b. below[i] is in row i.
    """
    below, diagonal, above, b = map(_wide, (below, diagonal, above, b))
    count, n, columns = b.shape
    given = np.zeros((n, 3 + columns, count), b.dtype)
    given[:, 0], given[:, 1], given[:-1, 2], given[:, 3:] = below.T, diagonal.T, above.T[:-1], b.transpose(1, 2, 0)
    rows = np.zeros_like(given)
    rows[0, :2], rows[0, 3:] = given[0, 1:3], given[0, 3:]
    for i in range(n - 1):
        upper, lower = rows[i], given[i + 1]
        swap = magnitude(lower[0]) > magnitude(upper[0])
        rows[i], lower = np.where(swap, lower, upper), np.where(swap, upper, lower)
        pivot = upper[0]
        lower -= lower[0] / (pivot + (pivot == 0)) * upper
        rows[i + 1, :2], rows[i + 1, 3:] = lower[1:3], lower[3:]
    return rows


def _substitute(rows: Stack) -> Stack:
    """Solves with the rows of `_eliminate`: returns [batch, n, columns]."""
    n = len(rows)
    x = np.zeros((n + 2, *rows[0, 3:].shape), rows.dtype)
    for i in reversed(range(n)):
        x[i] = (rows[i, 3:] - rows[i, 1] * x[i + 1] - rows[i, 2] * x[i + 2]) / rows[i, 0]
    return x[:n].transpose(2, 0, 1)
