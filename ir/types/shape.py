"""Shapes: element type, dimensions and layout of an array, or a tuple of shapes.

Shapes are immutable. Two shapes are *compatible* if they differ only in layout; most checks of HLO ignore layouts and
call `compatible`, round-trip tests call `==`. A flag marks `b(...)` buffer shapes. `dynamic` marks bounded dynamic
dimensions (`<=5`); an unbounded one (`?`) has size `UNBOUNDED`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from ..kept_hash import KeptHash, keep_hash
from .element_type import TUPLE, ElementType, Kind

UNBOUNDED = -1
_ELEMENT_SIZE = re.compile(r"E\(\d+\)")
_ON_HOST = "S(5)"  # XLA's number of the host's memory
_BEFORE_SIZE = re.compile(r"(?:L\(\d+\)|[#*]\([^)]*\))*")


@dataclass(frozen=True, slots=True)
class Layout:
    """Physical layout in XLA's syntax: `{minor_to_major:D(..)T(8,128)L(n)#(..)*(..)E(4)S(1)...}`.

    `minor_to_major` is None when only the parts after `:` are given (scalars). `tiles` holds one tuple per tile, None
    standing for `*`. `rest` keeps the parts after the tiles verbatim, in XLA's fixed order: Hloom does not interpret
    memory spaces, element sizes and the like.
    """

    minor_to_major: tuple[int, ...] | None = None
    tiles: tuple[tuple[int | None, ...], ...] = ()
    rest: str = ""

    def for_element(self, element: ElementType) -> Layout | None:
        """Returns the layout for elements of this type. As in XLA, only sub-byte types keep an element size."""
        if not self.rest or (element.bits < 8 and element.kind is not Kind.PRED):
            return self
        return self.with_element_size("")

    def with_element_size(self, size: str) -> Layout | None:
        """Returns the layout with this element size (`E(4)`, or an empty text for none)."""
        found = replace(self, rest=_BEFORE_SIZE.sub(rf"\g<0>{size}", _ELEMENT_SIZE.sub("", self.rest), count=1))
        return None if found == Layout() else found

    def __str__(self) -> str:
        order = "" if self.minor_to_major is None else ",".join(map(str, self.minor_to_major))
        tiles = "".join("(" + ",".join("*" if d is None else str(d) for d in t) + ")" for t in self.tiles)
        tail = (f"T{tiles}" if tiles else "") + self.rest
        return "{" + order + (f":{tail}" if tail else "") + "}"


class _KeptSize(KeptHash):
    """Base that holds the slot of a size, which costs ask for again and again. It is no field either."""

    __slots__ = ("_kept_size",)
    _kept_size: int


@keep_hash
@dataclass(frozen=True, slots=True)
class Shape(_KeptSize):
    """An array shape (`element`, `dims`, `layout`) or a tuple shape (`element` is TUPLE, `elements` its parts)."""

    element: ElementType
    dims: tuple[int, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()
    dynamic: tuple[bool, ...] = ()
    is_buffer: bool = False

    @property
    def is_tuple(self) -> bool:
        """Whether it is the shape of a tuple."""
        return self.element is TUPLE

    @property
    def is_array(self) -> bool:
        """Whether it is the shape of an array: not of a tuple, a token or an opaque value."""
        return self.element.is_array

    @property
    def is_scalar(self) -> bool:
        """Whether it is the shape of an array without dimensions."""
        return self.is_array and not self.dims

    @property
    def is_dynamic(self) -> bool:
        """Whether some dimension, of an element too, has a size that is known only at run time."""
        return any(self.dynamic) or UNBOUNDED in self.dims or (bool(self.elements) and _has_dynamic_element(self))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The dimensions in memory order, the fastest varying first."""
        order = self.layout.minor_to_major if self.layout else None
        return tuple(reversed(range(self.rank))) if order is None else order

    def is_ordered_like(self, other: Shape) -> bool:
        """Whether the dimensions of two arrays have the same order in memory."""
        if self.layout is None and other.layout is None:
            return len(self.dims) == len(other.dims)
        return self.minor_to_major == other.minor_to_major

    @property
    def num_elements(self) -> int:
        """The number of elements of an array (1 for a scalar), or their sum over the leaves of a tuple."""
        if self.is_tuple:
            return sum(e.num_elements for e in self.elements)
        return math.prod(self.dims)

    @property
    def byte_size(self) -> int:
        """The bytes that the runtime needs to hold a value of this shape."""
        try:
            return self._kept_size
        except AttributeError:
            if self.is_tuple:
                found = sum(e.byte_size for e in self.elements)
            else:
                found = math.prod(self.dims) * self.element.byte_size
            object.__setattr__(self, "_kept_size", found)
            return found

    @property
    def is_on_host(self) -> bool:
        """Whether it is the shape of an array in the memory of the host."""
        return self.layout is not None and _ON_HOST in self.layout.rest

    @property
    def device_bytes(self) -> int:
        """The bytes of `byte_size` in the memory of the device."""
        if self.is_tuple:
            return sum(e.device_bytes for e in self.elements)
        return 0 if self.is_on_host else self.byte_size

    def on_host(self) -> Shape:
        """Returns this array shape in the memory of the host."""
        layout = self.layout or Layout(self.minor_to_major)
        return self if self.is_on_host else replace(self, layout=replace(layout, rest=layout.rest + _ON_HOST))

    def on_device(self) -> Shape:
        """Returns this array shape in the memory of the device."""
        layout = self.layout and replace(self.layout, rest=self.layout.rest.replace(_ON_HOST, ""))
        usual = layout is None or layout in (Layout(), Layout(tuple(reversed(range(self.rank)))))
        return replace(self, layout=None if usual else layout)

    def leaves(self) -> Iterator[Shape]:
        """Yields the array, token and opaque shapes inside, depth first, left to right. An array is its own leaf."""
        if not self.is_tuple:
            yield self
            return
        for element in self.elements:
            yield from element.leaves()

    @property
    def num_leaves(self) -> int:
        """The number of arrays and tokens in a tuple and the tuples in it; 1 for all other shapes."""
        return first_leaves(self)[-1] if self.is_tuple else 1

    def leaf_range(self, index: int) -> tuple[int, int]:
        """Returns the first and one-past-last leaf number of tuple element `index`."""
        firsts = first_leaves(self)
        return firsts[index], firsts[index + 1]

    def part(self, index: str) -> Shape | None:
        """Returns the part of a tuple at an index such as `0, 1` (empty: the shape itself); None if there is none."""
        found = self
        for number in (int(n) for n in index.split(",") if n.strip()):
            if number >= len(found.elements):
                return None
            found = found.elements[number]
        return found

    def with_dims(self, dims: tuple[int, ...]) -> Shape:
        """Returns an array shape of the same element type with these dimensions and no layout."""
        return array(self.element, dims)

    def with_element(self, element: ElementType) -> Shape:
        """Returns the same dimensions and layout with another element type; see `Layout.for_element`."""
        if element is self.element:
            return self
        layout = self.layout and self.layout.for_element(element)
        return Shape(element, self.dims, layout, self.elements, self.dynamic, self.is_buffer)

    def with_element_size_of(self, other: Shape) -> Shape:
        """Returns this shape with the element size of the other's layout, if that has one."""
        size = _ELEMENT_SIZE.search(other.layout.rest) if other.layout else None
        layout = self.layout or Layout(self.minor_to_major or None)
        return replace(self, layout=layout.with_element_size(size[0] if size else ""))

    def without_layout(self) -> Shape:
        """Returns this shape with all layouts removed."""
        if self.is_tuple:
            return tuple_shape(tuple(e.without_layout() for e in self.elements))
        if self.layout is None:
            return self
        return Shape(self.element, self.dims, None, (), self.dynamic, self.is_buffer)

    def plain(self) -> Shape:
        """Returns this shape with the usual layouts, in the same memory."""
        if self.is_tuple:
            return tuple_shape(tuple(e.plain() for e in self.elements))
        return self.without_layout().on_host() if self.is_on_host else self.without_layout()

    def compatible(self, other: Shape) -> bool:
        """Whether the shapes are equal up to layouts."""
        if self is other:
            return True
        if self.element is not other.element or self.dims != other.dims:
            return False
        if len(self.elements) != len(other.elements) or any(self.dynamic) != any(other.dynamic):
            return False
        return all(a.compatible(b) for a, b in zip(self.elements, other.elements, strict=True))

    def __str__(self) -> str:
        return _text(self)


@lru_cache(maxsize=4096)
def first_leaves(shape: Shape) -> tuple[int, ...]:
    """Returns the number of the first leaf of each element of a tuple, and the total."""
    return tuple(accumulate((e.num_leaves for e in shape.elements), initial=0))


@lru_cache(maxsize=4096)
def _has_dynamic_element(shape: Shape) -> bool:
    return any(e.is_dynamic for e in shape.elements)


@lru_cache(maxsize=65536)
def _text(shape: Shape) -> str:
    if shape.is_tuple:
        parts = ((f"/*index={i}*/" if i and i % 5 == 0 else "") + str(e) for i, e in enumerate(shape.elements))
        text = "(" + ", ".join(parts) + ")"
    else:
        dynamic = shape.dynamic or (False,) * len(shape.dims)
        dims = ("?" if d == UNBOUNDED else f"<={d}" if y else str(d) for d, y in zip(shape.dims, dynamic, strict=True))
        text = f"{shape.element.name}[{','.join(dims)}]" + (str(shape.layout) if shape.layout else "")
    return f"b({text})" if shape.is_buffer else text


@lru_cache(maxsize=65536)
def array(element: ElementType, dims: tuple[int, ...] = ()) -> Shape:
    """Returns the array shape without layout. Equal arguments give the same object."""
    return Shape(element, dims)


def tuple_shape(elements: tuple[Shape, ...]) -> Shape:
    """Returns the tuple of these shapes."""
    return Shape(TUPLE, (), None, elements)


def merged_dims(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Merges the sizes of both, taking the known size where the other is unbounded; None if they differ."""
    if a == b:
        return a
    if len(a) != len(b) or any(x != y and UNBOUNDED not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(map(max, a, b))  # an unbounded size is less than any
