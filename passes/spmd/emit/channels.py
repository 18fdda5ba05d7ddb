"""State that the collectives of one module share: channel ids, reducers, the number of devices, pairs of devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ....ir.diagnostics import fail
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import Attributes
from ....ir.graph.computation import Computation
from ....ir.ops.collective_groups import CollectiveAttributes
from ....ir.ops.structure import ParameterAttributes
from ....ir.sharding.digit import Digits
from ....ir.sharding.mesh import LARGEST_LIST
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Channels:
    """Numbers collectives across the whole module, and builds the computations that reductions apply."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.count = 0
        self.reducers: dict[Hashable, Computation] = {}

    def next(self) -> int:
        self.count += 1
        return self.count

    def renumbered(self, attributes: Attributes) -> Attributes:
        """Returns the attributes of one of the program's own collectives with a channel of the new module."""
        if not isinstance(attributes, CollectiveAttributes) or attributes.channel_id is None:
            return attributes
        return replace(attributes, channel_id=self.next())

    def reducer(self, monoid: Monoid, shape: Shape) -> Computation:
        return self.computation((monoid, shape.element.name), lambda: _reducer(monoid, shape))

    def computation(self, key: Hashable, make: Callable[[], Computation]) -> Computation:
        """Returns a computation that the partitioner adds to the module, built once per key."""
        if key not in self.reducers:
            self.reducers[key] = make()
        return self.reducers[key]


def _reducer(monoid: Monoid, shape: Shape) -> Computation:
    computation = Computation(f"{monoid.value}_{shape.element}")
    scalar = shape.with_dims(())
    left, right = (
        computation.add("parameter", (), ParameterAttributes(n), scalar, name) for n, name in enumerate("ab")
    )
    computation.root = computation.add(monoid.value, (left, right))
    return computation


@lru_cache(maxsize=64)
def permute_pairs(source: Tiling, target: Tiling, devices: int) -> tuple[tuple[int, int], ...]:
    """Returns pairs of devices: the k-th holder of a tile under `source` sends to its k-th holder under `target`."""
    if source.device is not None and target.device is not None:
        return ((source.device, target.device),)
    senders, receivers = _holders(source, devices), _holders(target, devices)
    by_sender = np.argsort(senders)
    return tuple(zip(senders[by_sender].tolist(), receivers[by_sender].tolist(), strict=True))


def stay_apart(groups: Iterable[Sequence[int]], digits: Digits, order: tuple[int, ...] | None) -> bool:
    """Whether devices that differ in these digits are never in the same group."""
    place = {device: n for n, device in enumerate(order)} if order is not None else None

    def coordinates(device: int) -> tuple[int, ...]:
        number = place[device] if place is not None else device
        return tuple(number // d.stride % d.size for d in digits)

    return all(len({coordinates(device) for device in group}) <= 1 for group in groups)


def every_device(devices: int) -> Numbers:
    """Returns the numbers of all devices, for a collective-permute that lists pairs. Raises CompileError for too many
    devices.
    """
    if devices > LARGEST_LIST:
        fail(f"a collective-permute lists its devices: at most {LARGEST_LIST:,} are possible, not {devices:,}")
    return np.arange(devices)


def _holders(tiling: Tiling, devices: int) -> Numbers:
    """Returns devices sorted by the tile they hold, then by number."""
    places = every_device(devices)
    tile = np.zeros(devices, dtype=np.int64)
    for digits in tiling.dims:
        for digit in digits:
            tile = tile * digit.size + places // digit.stride % digit.size
    ids = places if tiling.order is None else np.asarray(tiling.order)
    return ids[np.lexsort((ids, tile))]
