"""Householder reflectors in LAPACK's packing, and the Schur form computed with them.

A reflector is H = I - tau v v^H with v[0] = 1, stored as v and tau. H^H maps the vector from which it was computed to a
real multiple of the first unit vector.
"""

from __future__ import annotations

from typing import Any

import numpy

from ..blocked import adjoint, solve_triangular

np: Any = numpy  # whose annotations are too loose here
Matrix = Any
Stack = Any
Vector = Any
_BLOCK = 48  # reflectors that are applied at once, by products of matrices


def reflector(x: Vector) -> tuple[Vector, Any, Any]:
    """Returns v, tau, and the real first element of H^H x, with the opposite sign of x[0]; H = I if x is reduced."""
    v, head = x.copy(), x[0]
    rest = np.linalg.norm(x[1:])
    v[0] = 1
    if rest == 0 and head.imag == 0:
        return v, x.dtype.type(0), head
    found = x.dtype.type(-np.copysign(np.hypot(np.abs(head), rest), head.real))
    v[1:] /= head - found
    return v, (found - head) / found, found


def reflect_left(a: Matrix, v: Vector, tau: Any) -> None:
    """Replaces a by (I - tau v v^H) a."""
    a -= np.outer(tau * v, v.conj() @ a)


def product(a: Stack, taus: Stack) -> Stack:
    """Returns the first columns, as many as a has, of the products of the reflectors stored below the diagonals of a.

    The matrices are in the last two dimensions of a.
    """
    q = np.zeros_like(a, order="C")
    q[...] = np.eye(*a.shape[-2:])
    for start in reversed(range(0, taus.shape[-1], _BLOCK)):
        _reflect(q[..., start:, start:], a, taus, start, inverse=False)
    return q


def multiply(a: Stack, taus: Stack, c: Stack, inverse: bool) -> Stack:
    """Returns Q c, or Q^H c if `inverse`, where Q is the product of the reflectors stored below the diagonal of a."""
    c = np.array(c, order="C")
    starts = range(0, taus.shape[-1], _BLOCK)
    for start in starts if inverse else reversed(starts):
        _reflect(c[..., start:, :], a, taus, start, inverse)
    return c


def _reflect(x: Stack, a: Stack, taus: Stack, start: int, inverse: bool) -> None:
    """Replaces x by the product of a block of reflectors, or its inverse, and x.

    The product is I - V T V^H, where T^-1 has 1 / tau on its diagonal and V^H V above. See Joffrain et al.,
    Accumulating Householder Transformations, Revisited, 2006.
    """
    some = slice(start, min(start + _BLOCK, taus.shape[-1]))
    v, taus = np.tril(a[..., start:, some], -1), taus[..., some, None]
    one = np.eye(v.shape[-1], dtype=a.dtype)
    v[..., : len(one), :] += one
    # T = (1 + D W)^-1 D, where W is V^H V above the diagonal, and D has the taus on it, which may be 0.
    t = solve_triangular(taus * np.matmul(adjoint(v), v), taus * one, lower=False, unit_diagonal=True)
    x -= np.matmul(v, np.matmul(adjoint(t) if inverse else t, np.matmul(adjoint(v), x)))


def schur(a: Matrix) -> tuple[Matrix, Matrix]:
    """Returns upper triangular T and unitary Z with a = Z T Z^H. For a real matrix both are real, and T has a 2x2 block
    with equal diagonal elements for each pair of complex eigenvalues.

    Uses deflation: rotates an eigenvector (for a pair, the plane of it and its conjugate) to the front and continues
    with the rest of the matrix. Eigenvalues are in numpy's order.
    """
    t, z, n = a.copy(), np.eye(len(a), dtype=a.dtype), len(a)
    wanted = np.linalg.eigvals(a)
    start = 0
    while start < n:
        values, vectors = np.linalg.eig(t[start:, start:])
        chosen = int(np.argmin(np.abs(values - wanted[start])))
        vector = vectors[:, chosen]
        real = not np.iscomplexobj(a)
        pair = real and values[chosen].imag != 0
        basis = np.stack([vector.real, vector.imag][: 1 + pair], 1) if real else vector[:, None]
        q = np.linalg.qr(basis, mode="complete")[0]
        _turn(t, z, start, q)
        size = basis.shape[1]
        t[start + size :, start : start + size] = 0
        if pair:
            _turn(t, z, start, _equal_diagonal(t[start : start + 2, start : start + 2]))
            middle = (t[start, start] + t[start + 1, start + 1]) / 2
            t[start, start] = t[start + 1, start + 1] = middle
        start += size
    return t, z


def _turn(t: Matrix, z: Matrix, start: int, q: Matrix) -> None:
    """Changes the basis of the dimensions from `start` on."""
    part = slice(start, start + len(q))
    t[part] = q.conj().T @ t[part]
    t[:, part] = t[:, part] @ q
    z[:, part] = z[:, part] @ q


def _equal_diagonal(block: Matrix) -> Matrix:
    """The rotation after which both diagonal elements of a real block of two rows are equal."""
    angle = np.arctan2(block[1, 1] - block[0, 0], block[0, 1] + block[1, 0]) / 2
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])
