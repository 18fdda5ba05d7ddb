"""Kernels whose result is their first operand, changed in some places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..types.literal import Array


class UpdatingKernel:
    """A kernel that copies its first operand and changes the copy. `update` changes an array itself."""

    __slots__ = ("update",)

    def __init__(self, update: Callable[..., None]) -> None:
        self.update = update

    def __call__(self, x: Array, *rest: Array) -> Array:
        result = _copied(np.asarray(x))  # converts numpy scalars, too
        self.update(result, *rest)
        return result


def _copied(x: Array) -> Array:
    """Returns a copy. Elements of types that numpy does not know, such as bf16, are copied as integers of their size:
    numpy copies broadcast ones one by one, which takes ten times as long.
    """
    if x.dtype.kind != "V":
        return np.array(x)
    return np.array(x.view(f"u{x.dtype.itemsize}")).view(x.dtype)
