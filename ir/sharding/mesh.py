"""Meshes: named axes over an ordered set of devices.

A mesh is a row-major grid with one named axis per dimension. Its device order gives the device at each place:
`None` for 0, 1, 2, ..; `IotaOrder` for XLA's `([4,2]T(1,0))`; or an explicit list. Axes turn into digits of the device
number where the order permits (every order except irregular explicit lists). Otherwise the digits count *places*, and
`Mesh.order_key` maps places to devices. Nothing here enumerates devices unless the mesh lists them.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..checked_call import checked
from ..diagnostics import fail
from ..kept_hash import KeptHash, keep_hash
from .digit import Digit, Digits, cut, iota_digits, merge, recognise, refine, split

NOT_IN_NAMES = re.compile(r"['\"\\{}]")  # characters that names of axes cannot have
LARGEST_MESH = 2**31 - 1
"""Device numbers are 32 bits wide in XLA."""

_HELP = "hloom.Mesh.of(x=2, y=4) makes one"

LARGEST_LIST = 2**20
"""The largest number of devices that is ever enumerated. Shardings that would list more are rejected."""


@dataclass(frozen=True, slots=True)
class IotaOrder:
    """The device list `iota(prod(dims)).reshape(dims).transpose(perm)`, flattened."""

    dims: tuple[int, ...]
    perm: tuple[int, ...]

    def __str__(self) -> str:
        dims = f"[{','.join(map(str, self.dims))}]"
        return f"({dims}T({','.join(map(str, self.perm))}))" if len(self.dims) > 1 else f"({dims})"


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis, or the sub-axis `name:(pre)size`: the middle part of the axis reshaped to `[pre, size, rest]`.

    `size` is 0 for a full axis.
    """

    name: str
    pre: int = 1
    size: int = 0

    def text(self, quote: str) -> str:
        name = f"{quote}{self.name}{quote}"
        return f"{name}:({self.pre}){self.size}" if self.size else name

    def __str__(self) -> str:
        return self.text("'")


@keep_hash
@dataclass(frozen=True, slots=True)
class Mesh(KeptHash):
    """A mesh. `axes` are (name, size) pairs, major first. `named` is False for meshes derived from HLO device lists.

    Raises CompileError for axes without names or sizes, and for two of one name.

    `symbol` is the mesh's name in Shardy (`@mesh`). `by_places` makes digits count places rather than devices, unless
    the order is 0, 1, 2, ..: a part of an axis may be a digit of places but not of device numbers (see `with_parts`).
    """

    axes: tuple[tuple[str, int], ...]
    order: IotaOrder | tuple[int, ...] | None = None
    named: bool = True
    symbol: str = "mesh"
    by_places: bool = False

    def __post_init__(self) -> None:
        """Raises TypeError for axes that are no pairs of a name and a size, CompileError for those that no mesh has."""
        if not isinstance(self.axes, tuple) or not all(map(_is_axis, self.axes)):  # pyright: ignore
            raise TypeError(f"Mesh: axes must be a tuple of names and sizes, found {self.axes!r}; {_HELP}")
        for name, size in self.axes:
            if not name or NOT_IN_NAMES.search(name):
                fail(f"'{name}' is no name of an axis")
            if size < 1:
                fail(f"axis '{name}' needs a size of at least 1")
        if len(dict(self.axes)) < len(self.axes):
            fail(f"a mesh has no two axes of one name: {', '.join(name for name, _ in self.axes)}")
        if self.size > LARGEST_MESH:
            fail(f"a mesh has at most {LARGEST_MESH} devices, their numbers have 32 bits")
        if self.order is not None and not _is_order(self.order, self.size):
            fail(f"{self} does not have each of its {self.size} devices once")

    @staticmethod
    @checked
    def of(**sizes: int) -> Mesh:
        """The mesh of these axes, major first, over devices 0, 1, 2, ..: `Mesh.of(x=2, y=4)`. Raises CompileError."""
        return Mesh(tuple(sizes.items()))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def axis_size(self, name: str) -> int:
        """Returns the size of the named axis. Raises KeyError if there is none."""
        return dict(self.axes)[name]

    def ref_size(self, ref: AxisRef) -> int:
        """Returns the size of an axis or sub-axis. Raises KeyError for an axis that the mesh does not have."""
        return ref.size or self.axis_size(ref.name)

    @property
    def order_key(self) -> tuple[int, ...] | None:
        """The device at each place, or None if the axes are digits of the device number."""
        return _digits_of(self)[1]

    def digits(self, ref: AxisRef) -> Digits:
        """Returns the digits of an axis or sub-axis.

        Raises KeyError for an unknown axis, ValueError for a part that the axis does not have.
        """
        whole = _digits_of(self)[0][ref.name]
        if not ref.size:
            return whole
        total = self.axis_size(ref.name)
        if ref.pre < 1 or total % (ref.pre * ref.size):
            raise ValueError(f"axis '{ref.name}' of size {total} has no part ({ref.pre}){ref.size}")
        parts = split(whole, [ref.pre, ref.size])
        if parts is None:
            raise ValueError(f"axis '{ref.name}' cannot be split as ({ref.pre}){ref.size} in this device order")
        return parts[1]

    def with_parts(self, refs: Iterable[AxisRef]) -> Mesh:
        """Returns this mesh, with digits by places if one of these sub-axes is not a digit of the device number.

        Example: the first half of `'a'=6` in the order `[2,3]T(1,0)` is devices 0, 3 and 1. Raises KeyError for an
        unknown axis.
        """
        for ref in refs:
            try:
                self.digits(ref)
            except ValueError:
                return replace(self, by_places=True)
        return self

    def refs(self, digits: Digits) -> tuple[AxisRef, ...] | None:
        """Returns the axes and sub-axes with these digits, in their order; None if this mesh has no such axes."""
        return _refs(self, merge(digits))

    def device_ids(self) -> tuple[int, ...]:
        """Returns all devices in the mesh's order, one entry per device."""
        if self.order is None:
            return tuple(range(self.size))
        if isinstance(self.order, IotaOrder):
            ids = np.arange(self.size).reshape(self.order.dims).transpose(self.order.perm)
            return tuple(int(i) for i in ids.reshape(-1))
        return self.order

    def __str__(self) -> str:
        """Returns `mesh['x'=2,'y'=4]`, followed by `device_ids=` unless the order is 0, 1, 2, .."""
        axes = ",".join(f"'{n}'={s}" for n, s in self.axes)
        if self.order is None:
            return f"mesh[{axes}]"
        ids = str(self.order) if isinstance(self.order, IotaOrder) else f"({','.join(map(str, self.order))})"
        return f"mesh[{axes}], device_ids={ids}"


def _is_axis(axis: object) -> bool:
    """Whether this is a pair of a text and a whole number."""
    match axis:
        case (str(), numbers.Integral()):
            return True
        case _:
            return False


def _is_order(order: IotaOrder | tuple[int, ...], size: int) -> bool:
    """Whether an order has so many devices, each once."""
    if isinstance(order, IotaOrder):
        return math.prod(order.dims) == size and sorted(order.perm) == list(range(len(order.dims)))
    return len(order) == len(set(order)) == size


@lru_cache(maxsize=4096)
def _digits_of(mesh: Mesh) -> tuple[dict[str, Digits], tuple[int, ...] | None]:
    sizes = [size for _, size in mesh.axes]
    names = [name for name, _ in mesh.axes]
    if mesh.order is None:
        sequence = iota_digits(sizes, range(len(sizes)))
    elif isinstance(mesh.order, IotaOrder):
        sequence = iota_digits(mesh.order.dims, mesh.order.perm)
    else:
        sequence = recognise(mesh.order)
    if mesh.by_places and mesh.order is not None:
        sequence = None
    parts = split(sequence, sizes) if sequence is not None else None
    if parts is not None:
        return dict(zip(names, map(merge, parts), strict=True)), None
    places = split(iota_digits(sizes, range(len(sizes))), sizes)
    assert places is not None
    return dict(zip(names, places, strict=True)), mesh.device_ids()


@lru_cache(maxsize=65536)
def _refs(mesh: Mesh, digits: Digits) -> tuple[AxisRef, ...] | None:
    axes = _digits_of(mesh)[0]
    found: list[AxisRef] = []
    for piece in cut(digits, refine(axes.values())):
        ref = next((r for name in axes if (r := _ref_within(mesh, name, axes[name], piece))), None)
        if ref is None:
            return None
        found.append(ref)
    return _join(mesh, found)


def _ref_within(mesh: Mesh, name: str, axis: Digits, piece: Digit) -> AxisRef | None:
    """Returns the sub-axis of `name` with this digit, or None unless the digit lies inside one digit of the axis."""
    size, below = mesh.axis_size(name), 1
    for part in reversed(axis):
        if part.overlaps(piece):
            low, rest = divmod(piece.stride, part.stride)
            if rest or low < 1 or part.size % (low * piece.size):
                return None
            pre = size // (piece.size * low * below)
            return AxisRef(name) if piece.size == size else AxisRef(name, pre, piece.size)
        below *= part.size
    return None


def _join(mesh: Mesh, refs: list[AxisRef]) -> tuple[AxisRef, ...]:
    """Joins adjacent sub-axes of one axis."""
    result: list[AxisRef] = []
    for ref in refs:
        last = result[-1] if result else None
        if last and last.size and ref.size and last.name == ref.name and last.pre * last.size == ref.pre:
            size = last.size * ref.size
            result[-1] = AxisRef(ref.name) if size == mesh.axis_size(ref.name) else AxisRef(ref.name, last.pre, size)
        else:
            result.append(ref)
    return tuple(result)


def parse_sizes(text: str) -> dict[str, int]:
    """Parses sizes of axes, `x=2,y=4`. Raises ValueError for another text, CompileError for more devices than any mesh
    has.
    """
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    sizes = {name: int(size) for name, size in pairs if name and size.isdecimal()}
    if len(sizes) != len(pairs) or 0 in sizes.values():
        raise ValueError(f"{text!r} is not of the form x=2,y=4")
    Mesh.of(**sizes)
    return sizes


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Returns sizes of axes as `parse_sizes` reads them."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
