"""Relations: how a value of the partitioned program, on all devices together, derives from one of the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import Dims
from ..flow import ValueLeaf
from .devices import DeviceAxes, DeviceGrouping
from .fits import TileFit
from .index import Source


class RelationKind(Enum):
    """Kinds of relations. Each device holds ..

    TILE        a tile of a value, or all of it
    REARRANGED  elements of a value at regular distances: a slice of other rank, a transpose, a reshape
    PARTIAL     a part of a tile: groups of devices combine their parts to it
    MASKED      likewise, where at each place one device has the element and the others the identity
    HOLES       a tile with one number, such as zero, in place of some of its elements
    CONSTANT    the same numbers for all inputs, that are no value of the original
    DEVICE      numbers that follow from its own number alone
    NONE        nothing that was found
    """

    TILE = "tile"
    REARRANGED = "rearranged"
    PARTIAL = "partial"
    MASKED = "masked partial"
    HOLES = "tile with holes"
    CONSTANT = "constant"
    DEVICE = "from the device number"
    NONE = "none found"


@dataclass(frozen=True)
class Relation:
    """One relation. `fits` says which elements of `source` each device has; None: on this device all is padding."""

    kind: RelationKind
    source: Source | None = None
    value: ValueLeaf | None = None
    fits: Mapping[int, TileFit | None] = field(default_factory=dict[int, "TileFit | None"])
    grouping: DeviceGrouping | None = None
    monoid: Monoid | None = None

    def text(self, devices: DeviceAxes, shape: Dims, rank: int) -> str:
        """Describes the relation of a value of this rank with arrays of this shape per device."""
        if self.source is None:
            return self.kind.value
        if self.kind is RelationKind.REARRANGED:  # its offsets are those in the flat value
            return f"elements of {self.value}{_by(devices.axes_of(self.offsets()))}"
        what = f"{self.value}{self._dims(self.source.array.shape, shape, rank, devices)}"
        if self.grouping is not None and self.monoid is not None:
            monoid = "sum" if self.monoid is Monoid.ADD else self.monoid.value
            of = "masked" if self.kind is RelationKind.MASKED else f"partial {monoid}"
            return f"{of} over {self.grouping.name} of {what}"
        found = f"tile of {what}" if self.is_divided(shape) else f"all of {self.value}"
        return f"{found} with holes" if self.kind is RelationKind.HOLES else found

    def offsets(self) -> dict[int, Dims]:
        """The offset on each device that has one."""
        return {d: fit.offset for d, fit in self.fits.items() if fit is not None}

    def is_divided(self, shape: Dims) -> bool:
        """Whether devices of this shape hold less than the whole value."""
        return self.source is not None and (self.source.array.shape != shape or any(map(any, self.offsets().values())))

    def _dims(self, whole: Dims, shape: Dims, rank: int, devices: DeviceAxes) -> str:
        offsets = self.offsets()
        if len(whole) != len(shape) or not self.is_divided(shape):
            return ""
        dims = [_dim({d: o[k] for d, o in offsets.items()}, n, devices) for k, n in enumerate(shape)][:rank]
        return f" [{', '.join(dims)}]"


def _by(axes: str) -> str:
    return f" by {axes}" if axes else ""


def _dim(starts: dict[int, int], size: int, devices: DeviceAxes) -> str:
    """One dimension: the axes that divide it, and how far tiles overlap their neighbours."""
    ordered = sorted(set(starts.values()))
    if len(ordered) < 2:
        return f"from {ordered[0]}" if ordered and ordered[0] else "-"
    step = min(b - a for a, b in pairwise(ordered))
    low = max(0, -ordered[0])
    high = size - step - low
    halo = f" -{low}..+{high}" if size > step else ""
    return devices.axes_of(starts) + halo
