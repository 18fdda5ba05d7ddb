"""Literals: the values of `constant` instructions.

A literal is an array (numpy, never modified after creation), a tuple of literals, or an array of unknown values.
Equality is bitwise: -0.0 and 0.0 differ, and a NaN equals itself. Unknown values equal only themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .element_type import from_numpy
from .shape import Shape, array, tuple_shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Represents array values omitted from a printed program, `{...}`. Each occurrence is a distinct object."""

    shape: Shape


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant value: an `array`, the `elements` of a tuple, or `unknown` for values omitted in the text."""

    array: Array | None = None
    elements: tuple[Literal, ...] = ()
    unknown: Unknown | None = None

    @cached_property
    def shape(self) -> Shape:
        if self.unknown is not None:
            return self.unknown.shape
        if self.array is None:
            return tuple_shape(tuple(e.shape for e in self.elements))
        return array(from_numpy(self.array.dtype), self.array.shape)

    @cached_property
    def is_known(self) -> bool:
        """Whether all values are known."""
        return all(leaf.unknown is None for leaf in self.leaves())

    def leaves(self) -> Iterator[Literal]:
        """Yields the array literals, known or not, in order."""
        if self.array is not None or self.unknown is not None:
            yield self
        for element in self.elements:
            yield from element.leaves()

    def may_equal(self, other: Literal) -> bool:
        """Whether the two may be equal: values unknown on both sides may be the same."""
        if self.unknown is not None and other.unknown is not None:
            return self.shape == other.shape
        if self.elements and len(self.elements) == len(other.elements):
            return all(a.may_equal(b) for a, b in zip(self.elements, other.elements, strict=True))
        return self == other

    def map_leaves(self, function: Callable[[Array], Any]) -> Any:
        """Applies `function` to the array, or to every array of a tuple, and returns the same structure."""
        if self.array is not None:
            return function(self.array)
        return tuple(e.map_leaves(function) for e in self.elements)

    @property
    def value(self) -> Any:
        """Returns the value for the evaluator: a numpy array, or a tuple of values. It must be known."""
        assert self.is_known
        return self.map_leaves(lambda a: a)

    @cached_property
    def is_splat(self) -> bool:
        """Whether this is a nonempty array whose elements are all bitwise equal."""
        a = self.array
        if a is None or a.size == 0:
            return False
        flat = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.size, -1)
        return bool((flat == flat[0]).all())

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        if self.array is None:
            return (self.unknown,) if self.unknown is not None else tuple(e._key for e in self.elements)
        return (self.array.dtype, self.array.shape, np.ascontiguousarray(self.array).tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def unknown(shape: Shape) -> Literal:
    """Returns a literal of this shape with unknown values."""
    if shape.is_tuple:
        return Literal(elements=tuple(map(unknown, shape.elements)))
    return Literal(unknown=Unknown(shape.without_layout()))


def scalar(value: Any, dtype: np.dtype[Any] | None) -> Literal:
    """Returns the rank-0 literal of `value` in numpy type `dtype`."""
    return Literal(np.asarray(value, dtype=dtype))
