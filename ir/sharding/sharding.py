"""Shardings: annotations of HLO and Shardy that place a value on a mesh.

One type represents all syntaxes. A sharding is *axis based*: it has a mesh, and per dimension an ordered list of axes
or sub-axes. HLO's device lists (`devices=[2,4]<=[8]`) become axes of an anonymous mesh on reading and device lists
again on printing (`tile_assignment`). `tiling` gives the meaning, free of names. The forms without a mesh
(`replicated`, `manual`, `unknown`, `unreduced`, `maximal device=N`) are kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from types import NoneType

from ..checked_call import checked, wrong_type
from ..diagnostics import fail
from ..in_notebooks import InNotebooks
from ..kept_hash import KeptHash, keep_hash
from .digit import Digits, complement, merge
from .mesh import AxisRef, Mesh
from .tiling import Tiling


class ShardingKind(Enum):
    TILED = "tiled"  # by the axes of a mesh, or over one device; without axes of any size it is replicated
    REPLICATED = "replicated"
    MANUAL = "manual"
    UNKNOWN = "unknown"
    UNREDUCED = "unreduced"
    MAXIMAL = "maximal"  # the full value on one device


class Spelling(Enum):
    """The syntax in which a sharding is printed. V1 lists devices, V2 gives them as an iota, NAMED uses mesh axes."""

    V1 = 1
    V2 = 2
    NAMED = 3


@dataclass(frozen=True, slots=True)
class DimSharding:
    """The axes of one dimension, major to minor. An open dimension (`?`) may get more axes from propagation."""

    axes: tuple[AxisRef, ...] = ()
    is_open: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """`shard_as N` or `shard_like N`: propagation shards the values of one group alike."""

    kind: str
    number: int


@keep_hash
@dataclass(frozen=True, slots=True)
class Sharding(KeptHash, InNotebooks):
    """The sharding of one array. `dims` may be empty for the kinds without a mesh, whatever the rank.

    TILED without a mesh is HLO's `devices=[1,1]<=[1]` with one entry of `dims` per dimension: a single tile. It means
    the same as `replicated` but, as in XLA, is a distinct annotation.

    `replicated`, `unreduced` and `manual` list the axes so marked. Unmentioned axes are replicated too, and so are
    `maximal` ones, along which only one device need hold the value. `device` belongs to MAXIMAL. `metadata` is the raw
    text between the braces of `metadata={..}`.
    """

    kind: ShardingKind
    mesh: Mesh | None = None
    dims: tuple[DimSharding, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()
    maximal: tuple[AxisRef, ...] = ()
    device: int = 0
    group: ShardGroup | None = None
    metadata: str | None = None
    spelling: Spelling = Spelling.V2

    @staticmethod
    @checked
    def over(mesh: Mesh, *dims: str | Sequence[str] | None) -> Sharding:
        """The sharding that divides each dimension by an axis of a mesh, by several (major first), or by none.

            Sharding.over(Mesh.of(x=2, y=4), "x", None, ("y",))

        Raises CompileError for axes that the mesh does not have, or that are used twice.
        """
        for axes in dims:
            if not isinstance(axes, str | Sequence | None):  # pyright: ignore
                raise wrong_type("over: axes of a dimension", axes, (str, Sequence, NoneType))
        named = [[] if axes is None else [axes] if isinstance(axes, str) else list(axes) for axes in dims]
        used = [name for names in named for name in names]
        known = dict(mesh.axes)
        for name in used:
            if name not in known:
                fail(f"the mesh has no axis '{name}'", help="axes: " + ", ".join(known))
            if used.count(name) > 1:
                fail(f"axis '{name}' is used twice")
        parts = tuple(DimSharding(tuple(map(AxisRef, names))) for names in named)
        return Sharding(ShardingKind.TILED, mesh, parts, spelling=Spelling.NAMED)

    @staticmethod
    def from_tiling(tiling: Tiling, mesh: Mesh) -> Sharding | None:
        """Returns the sharding on `mesh` that means `tiling`; None if the mesh has no such axes or another order."""
        if tiling.order != mesh.order_key and tiling.used():
            return None
        dims: list[DimSharding] = []
        for digits in tiling.dims:
            refs = mesh.refs(digits)
            if refs is None:
                return None
            dims.append(DimSharding(refs))
        unreduced, manual = mesh.refs(tiling.unreduced), mesh.refs(tiling.manual)
        if unreduced is None or manual is None:
            return None
        spelling = Spelling.NAMED if mesh.named else Spelling.V2
        return Sharding(ShardingKind.TILED, mesh, tuple(dims), unreduced=unreduced, manual=manual, spelling=spelling)

    @staticmethod
    def on_own_mesh(tiling: Tiling, devices: int) -> Sharding:
        """Returns the sharding that means `tiling` on an anonymous mesh of its own, printed as a device list."""
        used = tiling.used()
        rest = complement(devices, used)
        assert rest is not None, "digits overlap"
        digits = sorted((*used, *rest), key=lambda d: -d.stride)
        axes = tuple((f"axis_{i}", d.size) for i, d in enumerate(digits))
        mesh = Mesh(axes, tiling.order, named=False, by_places=tiling.order is not None)
        sharding = Sharding.from_tiling(tiling, mesh)
        assert sharding is not None
        return sharding

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the full value. Raises KeyError for an unknown axis."""
        if self.kind is not ShardingKind.TILED:
            return self.kind is ShardingKind.REPLICATED
        return self._idle(*(dim.axes for dim in self.dims), self.unreduced, self.manual)

    @property
    def fits_any_mesh(self) -> bool:
        """Whether no axis is used, so that the mesh need not be the module's. Raises KeyError for an unknown axis."""
        return self.is_replicated and self._idle(self.replicated, self.maximal)

    def _idle(self, *lists: tuple[AxisRef, ...]) -> bool:
        return self.mesh is None or all(self.mesh.ref_size(ref) == 1 for refs in lists for ref in refs)

    @property
    def has_manual(self) -> bool:
        """Whether the program itself divides the value along some axis, or along all."""
        return self.kind is ShardingKind.MANUAL or bool(self.manual)

    def tiling(self, rank: int) -> Tiling:
        """Returns the tiling of an array of this rank. Kinds without a mesh, except MAXIMAL, count as replicated.

        Raises KeyError for an unknown axis, ValueError for an axis used twice or a part the axis does not have.
        """
        return _tiling(self, rank)

    def with_mesh(self, mesh: Mesh) -> Sharding:
        """Returns the same axes on another mesh that has axes of these names."""
        return replace(self, mesh=mesh)

    def __str__(self) -> str:
        from .sharding_text import sharding_text

        return sharding_text(self)


@keep_hash
@dataclass(frozen=True, slots=True)
class TupleSharding(KeptHash):
    """One sharding per leaf of a tuple-shaped value, flattened depth first."""

    elements: tuple[Sharding, ...]

    def __str__(self) -> str:
        parts = (("/*index=" + str(i) + "*/" if i and i % 5 == 0 else "") + str(e) for i, e in enumerate(self.elements))
        return "{" + ", ".join(parts) + "}"


AnySharding = Sharding | TupleSharding

REPLICATED = Sharding(ShardingKind.REPLICATED)
MANUAL = Sharding(ShardingKind.MANUAL)
UNKNOWN = Sharding(ShardingKind.UNKNOWN)


def leaf_shardings(sharding: AnySharding | None, num_leaves: int) -> tuple[Sharding | None, ...]:
    """Returns one entry per leaf. A single sharding on a tuple applies to all its leaves."""
    if isinstance(sharding, TupleSharding):
        if len(sharding.elements) != num_leaves:
            raise ValueError(f"sharding has {len(sharding.elements)} entries for {num_leaves} leaves")
        return sharding.elements
    return (sharding,) * num_leaves


@lru_cache(maxsize=65536)
def _tiling(sharding: Sharding, rank: int) -> Tiling:
    mesh = sharding.mesh
    if sharding.kind is ShardingKind.MAXIMAL:
        return Tiling(((),) * rank, device=sharding.device)
    if sharding.kind is not ShardingKind.TILED or mesh is None:
        return Tiling.replicated(rank)

    def digits(refs: tuple[AxisRef, ...]) -> Digits:
        return merge(d for ref in refs for d in mesh.digits(ref))

    dims = [digits(d.axes) for d in sharding.dims] + [()] * (rank - len(sharding.dims))
    tiling = Tiling(tuple(dims), digits(sharding.unreduced), mesh.order_key, digits(sharding.manual)).canonical()
    if not tiling.is_consistent():
        raise ValueError("an axis is used twice")
    return tiling
