"""Parses replica groups, in the three forms of HLO text: lists of devices, ordered numbers, and axes of a mesh."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

from ...ir.sharding.replica_groups import ExplicitGroups, IotaGroups, MeshGroups, ReplicaGroups
from .errors import TextError
from .grammar import read
from .shapes import ints
from .shardings import axis_refs, check_ids, error_at, iota_order, mesh_of

_FLAT = re.compile(r"\{\d[\d,\s]*\}")


@lru_cache(maxsize=4096)
def parse_replica_groups(text: str) -> ReplicaGroups:
    """Parses the value of a `replica_groups=` attribute, in any of its three forms. Raises TextError."""
    if _FLAT.fullmatch(text):
        raise TextError("replica groups: each group stands in braces", 0, len(text), f"for one group write {{{text}}}")
    tree = read("replica_groups", "replica groups", text)
    if tree.data == "explicit_groups":
        return _explicit_groups(tree)
    if tree.data == "iota_groups":
        sizes, dims_token, perm_token = tree.children
        order = iota_order(dims_token, perm_token)
        if len(ints(sizes)) != 2 or min(ints(sizes)) < 1:
            raise error_at(sizes, "two positive numbers expected: groups, devices per group")
        groups, size = ints(sizes)
        if groups * size != math.prod(order.dims):
            raise error_at(sizes, f"{groups} groups of {size} make {groups * size} devices, "
                                f"the list has {math.prod(order.dims)}")
        return IotaGroups(groups, size, order.dims, order.perm)
    mesh = mesh_of(tree.children[0])
    refs = axis_refs(tree.children[1:], mesh, [])
    if math.prod(mesh.ref_size(r) for r in refs) < 2:
        raise TextError("replica groups: a group has one device only", 0, len(text))
    return MeshGroups(mesh.with_parts(refs), refs)


def _explicit_groups(tree: Any) -> ExplicitGroups:
    lists: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for group in tree.children:
        if group is None:
            continue
        token = group.children[0]
        ids = ints(token) if token is not None else ()
        if token is not None:
            check_ids(ids, token)
            twice = next((i for i in ids if i in seen), None)
            if twice is not None:
                raise error_at(token, f"device {twice} is in two groups")
        seen.update(ids)
        lists.append(ids)
    return ExplicitGroups(tuple(lists))
