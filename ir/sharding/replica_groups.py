"""Replica groups: the sets of devices that communicate in a collective.

HLO has three forms: explicit lists, iota (`[4,2]<=[2,4]T(1,0)`) and mesh axes (`mesh['x'=2,'y'=4] {'y'}`). An empty
explicit list means one group of all devices. Only `enumerate_groups` lists devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..diagnostics import fail
from .digit import Digits, complement, iota_form, merge, product
from .mesh import AxisRef, Mesh

Groups = tuple[tuple[int, ...], ...]
LISTED = 1 << 20
"""The most devices whose groups are listed."""


@dataclass(frozen=True, slots=True)
class ExplicitGroups:
    lists: Groups = ()

    def __str__(self) -> str:
        return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in self.lists) + "}"


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """Consecutive groups of `group_size` devices from the list `iota(prod(dims)).reshape(dims).transpose(perm)`."""

    num_groups: int
    group_size: int
    dims: tuple[int, ...]
    perm: tuple[int, ...]

    def __str__(self) -> str:
        text = f"[{self.num_groups},{self.group_size}]<=[{','.join(map(str, self.dims))}]"
        return text + (f"T({','.join(map(str, self.perm))})" if len(self.dims) > 1 else "")


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """Groups over the listed axes or sub-axes of a mesh (major to minor). All other axes number the groups."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    def __str__(self) -> str:
        return f"{self.mesh} {{{','.join(map(str, self.axes))}}}"


ReplicaGroups = ExplicitGroups | IotaGroups | MeshGroups


@lru_cache(maxsize=1024)
def over_digits(devices: int, digits: Digits, order: tuple[int, ...] | None = None) -> ReplicaGroups:
    """Returns groups of the devices that differ only in these digits, ordered by them, major to minor.

    Uses the iota form, whose size does not depend on the number of devices, unless `order` is irregular.
    """
    rest = complement(devices, digits)
    assert rest is not None, "digits overlap"
    dims, perm = iota_form(rest + digits)
    size = product(digits)
    groups = IotaGroups(devices // size, size, dims, perm)
    if order is None:
        return groups
    return ExplicitGroups(tuple(tuple(order[place] for place in group) for group in enumerate_groups(groups, devices)))


@lru_cache(maxsize=1024)
def enumerate_groups(groups: ReplicaGroups, devices: int) -> Groups:
    """Returns the groups as lists of device numbers. An empty explicit list gives one group of all `devices`. Raises
    CompileError for more devices than `LISTED`.
    """
    size = _devices_of(groups, devices)
    if size > LISTED:
        fail(f"the groups of {size:,} devices cannot be listed, only those of {LISTED:,}")
    if isinstance(groups, ExplicitGroups):
        return groups.lists or (tuple(range(devices)),)
    if isinstance(groups, IotaGroups):
        ids = np.arange(math.prod(groups.dims)).reshape(groups.dims).transpose(groups.perm)
        return tuple(tuple(int(i) for i in row) for row in ids.reshape(groups.num_groups, groups.group_size))
    mesh = groups.mesh
    digits = merge(d for ref in groups.axes for d in mesh.digits(ref))
    return enumerate_groups(over_digits(mesh.size, digits, mesh.order_key), mesh.size)


def _devices_of(groups: ReplicaGroups, devices: int) -> int:
    if isinstance(groups, ExplicitGroups):
        return 0 if groups.lists else devices
    return math.prod(groups.dims) if isinstance(groups, IotaGroups) else groups.mesh.size


def group_size(groups: ReplicaGroups, devices: int) -> int:
    """Returns the number of devices per group, of the largest where explicit groups differ."""
    if isinstance(groups, ExplicitGroups):
        return max(map(len, groups.lists), default=devices)
    if isinstance(groups, IotaGroups):
        return groups.group_size
    return math.prod(groups.mesh.ref_size(ref) for ref in groups.axes)
