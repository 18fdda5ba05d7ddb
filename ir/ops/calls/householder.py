"""Householder reflectors in LAPACK's packing, and the Schur form computed with them.

A reflector is H = I - tau v v^H with v[0] = 1, stored as v and tau. H^H maps the vector from which it was computed to a
real multiple of the first unit vector.
"""

from __future__ import annotations

from typing import Any

import numpy

np: Any = numpy  # whose annotations are too loose here
Matrix = Any
Vector = Any


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


def product(a: Matrix, taus: Vector, rows: int, columns: int) -> Matrix:
    """Returns the first columns of the product of the reflectors stored below the diagonal of a."""
    q = np.eye(rows, columns, dtype=a.dtype)
    for i in reversed(range(len(taus))):
        v = np.concatenate([np.ones(1, a.dtype), a[i + 1 :, i]])
        reflect_left(q[i:, i:], v, taus[i])
    return q


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
