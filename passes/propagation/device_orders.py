"""Device lists of one physical mesh: rewrites them over one device order, where there is one.

Programs for machines with an irregular device order list the devices per value: `[4,2]0,1,3,2,7,6,4,5` and, transposed,
`[2,4]0,3,7,4,1,2,6,5`. Taken literally each is an order of its own, and tilings over different orders have no digits in
common. Written over the order of the first, the second is its transpose.

A mesh may count places for one sharding and not for another (`Mesh.with_parts`); then it counts places for all.

The common order is derived from the lists themselves: the number of a device's tile along a dimension is, in mixed
radix, a few digits of prime size. The digits that are independent of one another number the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, cast

import numpy as np

from ...ir.graph.module import Module
from ...ir.sharding.digit import Digit, Digits, primes, product, recognise, split
from ...ir.sharding.sharding import AnySharding, Sharding, ShardingKind, TupleSharding
from ...ir.sharding.tiling import Tiling
from ...ir.tools.sharding_checks import device_problem
from ...ir.tools.spmd import Order, parts
from ...ir.types.literal import Array
from ..base import Pass, PassContext


@dataclass(frozen=True)
class DeviceOrders(Pass):
    """Rewrites device lists over one device order."""

    name: ClassVar[str] = "device-orders"

    def run(self, module: Module, context: PassContext) -> bool:
        times = _times(module)
        shardy = {id(a): a for c in module for i in c if (a := i.shardy) is not None}
        new = _by_places((*[sharding for sharding, _ in times], *shardy.values()))
        if _renew(module, new):
            times = _times(module)
        return self._join_lists(module, times) or bool(new)

    def _join_lists(self, module: Module, times: Iterable[tuple[AnySharding, int]]) -> bool:
        used = Counter[Sharding]()
        for sharding, count in times:
            for s in filter(_is_list, parts(sharding)):
                used[s] += count
        if len({s.mesh.order_key for s in used if s.mesh is not None}) < 2:
            return False
        tilings = Counter[Tiling]()
        for sharding, count in used.items():
            tilings[sharding.tiling(len(sharding.dims))] += count
        devices = max(s.mesh.size for s in used if s.mesh is not None)
        if any(device_problem(s, devices) for s in used):
            return False  # an error, which propagation reports
        order = _common_order(tilings, devices)
        return _renew(module, {s: found for s in used if (found := _over(s, order)) is not None})


def _times(module: Module) -> list[tuple[AnySharding, int]]:
    """Returns the shardings of a module, and how often each object is used: mostly there are few."""
    said = [s for c in module for i in c if (s := i.sharding) is not None]
    times = Counter(map(id, said))
    return [(sharding, times[same]) for same, sharding in dict(zip(map(id, said), said, strict=True)).items()]


def _by_places(annotations: Iterable[AnySharding]) -> dict[Sharding, Sharding]:
    """Makes a mesh that counts places for one sharding do so for all; returns the replaced shardings."""
    every = {s for annotation in annotations for s in parts(annotation)}
    found = {s.mesh for s in every if s.mesh is not None and s.mesh.by_places}
    pairs = [(s, replace(s.mesh, by_places=True)) for s in every if s.mesh is not None and found]
    return {s: s.with_mesh(mesh) for s, mesh in pairs if mesh in found and mesh != s.mesh}


def _is_list(sharding: Sharding) -> bool:
    mesh = sharding.mesh
    listed = sharding.kind is ShardingKind.TILED and mesh is not None and not mesh.named
    return listed and not sharding.is_replicated and not sharding.replicated and not sharding.maximal


def _renew(module: Module, new: dict[Sharding, Sharding]) -> bool:
    for instruction in (i for c in module for i in c if new):
        instruction.sharding = _renewed(instruction.sharding, new)
        instruction.shardy = _renewed(instruction.shardy, new)
    return bool(new)


def _renewed(sharding: AnySharding | None, new: dict[Sharding, Sharding]) -> AnySharding | None:
    if isinstance(sharding, TupleSharding):
        return TupleSharding(tuple(new.get(s, s) for s in sharding.elements))
    return new.get(sharding, sharding) if sharding is not None else None


def _over(sharding: Sharding, order: Order) -> Sharding | None:
    """Returns the same sharding over another order; None if that is not possible, or the order is the same."""
    assert sharding.mesh is not None
    tiling = sharding.tiling(len(sharding.dims))
    found = aligned(tiling, order, sharding.mesh.size) if tiling.order != order else None
    if found is None:
        return None
    made = Sharding.on_own_mesh(found, sharding.mesh.size)
    return replace(made, group=sharding.group, metadata=sharding.metadata)


def _common_order(tilings: Counter[Tiling], devices: int) -> Order:
    """Returns the order over which most of the tilings can be written."""
    orders = dict.fromkeys((None, *sorted(t.order for t in tilings if t.order), _joint_order(tilings, devices)))

    def fitting(order: Order) -> int:
        return sum(n for t, n in tilings.items() if t.order == order or aligned(t, order, devices) is not None)

    return max(orders, key=fitting)  # the first of equally good ones


def _joint_order(tilings: Counter[Tiling], devices: int) -> Order:
    """Sorts the devices by the independent ones among the digits of their tile numbers."""
    counted = Counter[tuple[int, tuple[int, ...]]]()
    for tiling, count in tilings.items():
        for size, numbers in chain.from_iterable(map(_prime_digits, *zip(*_groups(tiling, devices)))):
            counted[size, tuple(numbers.tolist())] += count
    place, made = np.zeros(devices, np.int64), 1
    for (size, numbers), _ in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        joined = place * size + np.asarray(numbers)
        occurring = np.bincount(joined, minlength=made * size)
        if devices % (made * size) == 0 and (occurring == devices // (made * size)).all():
            place, made = joined, made * size
    order = tuple(int(d) for d in np.argsort(place, kind="stable"))
    return None if order == tuple(range(devices)) else order


def _groups(tiling: Tiling, devices: int) -> Iterator[tuple[int, Array]]:
    """Yields for each group of digits the number of tiles, and each device's number among them."""
    places = np.arange(devices) if tiling.order is None else np.argsort(np.asarray(tiling.order))
    for digits in (*tiling.dims, tiling.unreduced, tiling.manual):
        yield product(digits), _numbers(digits, places)


def _numbers(digits: Digits, places: Array) -> Array:
    found: Array = np.zeros_like(places)
    for digit in digits:
        found = found * digit.size + places // digit.stride % digit.size
    return found


def _prime_digits(size: int, numbers: Array) -> Iterator[tuple[int, Array]]:
    """Splits numbers below `size` into digits of prime size."""
    for digit in primes((Digit(size, 1),)):
        yield digit.size, _numbers((digit,), numbers)


def aligned(tiling: Tiling, order: Order, devices: int) -> Tiling | None:
    """Returns the tiling over another order that puts the same tiles on the same devices; None if there is none."""
    groups = list(_groups(tiling, devices))
    ids = np.arange(devices) if order is None else np.asarray(order)
    key: Array = np.zeros(devices, np.int64)
    for size, numbers in groups:
        key = key * size + numbers[ids]
    found = recognise(cast(list[int], np.argsort(key, kind="stable").tolist()))
    pieces = split(found, [size for size, _ in groups]) if found is not None else None
    if pieces is None:
        return None
    *dims, unreduced, manual = pieces[: len(groups)]
    return Tiling(tuple(dims), unreduced, order, manual).canonical()
