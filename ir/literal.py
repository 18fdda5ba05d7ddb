"""Literals: the values of `constant` instructions.

A literal is an array (numpy, never written to after creation) or a tuple of literals. Equality is to the bit, so that
-0.0 and 0.0 differ and a NaN equals itself: two programs are the same only if their constants are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .element_type import from_numpy
from .shape import Shape, array, tuple_shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Literal:
    """`array` for an array value, else `elements` for a tuple.

    `elided` marks the text `{...}`: the values were not printed by whoever wrote the file, and are unknown.
    """

    array: Array | None = None
    elements: tuple[Literal, ...] = ()
    elided: Shape | None = None

    @cached_property
    def shape(self) -> Shape:
        if self.elided is not None:
            return self.elided
        if self.array is None:
            return tuple_shape(tuple(e.shape for e in self.elements))
        return array(from_numpy(self.array.dtype), self.array.shape)

    def map_leaves(self, function: Callable[[Array], Any]) -> Any:
        """`function` of the array, or the tuple of that for the elements."""
        if self.array is not None:
            return function(self.array)
        return tuple(e.map_leaves(function) for e in self.elements)

    @property
    def value(self) -> Any:
        """The value as the evaluator passes it: a numpy array, or a tuple of values."""
        return self.map_leaves(lambda a: a)

    @cached_property
    def is_splat(self) -> bool:
        """An array all of whose elements are the same bits (and which has at least one)."""
        a = self.array
        if a is None or a.size == 0:
            return False
        flat = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.size, -1)
        return bool((flat == flat[0]).all())

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        if self.array is None:
            return ("elided", self.elided) if self.elided is not None else tuple(e._key for e in self.elements)
        return (self.array.dtype, self.array.shape, np.ascontiguousarray(self.array).tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def scalar(value: Any, dtype: np.dtype[Any] | None) -> Literal:
    """The rank-0 literal of `value` in numpy type `dtype`."""
    return Literal(np.asarray(value, dtype=dtype))
