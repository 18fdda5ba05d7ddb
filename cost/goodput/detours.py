"""Computes the bandwidth that a torus keeps when one link is missing, and messages go round it.

Every node sends as much to every other one, along all shortest ways that the missing link leaves, in equal parts. The
busiest link then limits an all-to-all. An all-reduce along the ring of the missing link runs on a line, at half of the
rate (`cost.torus.Side`). Counts paths as Brandes, "A faster algorithm for betweenness centrality" (2001).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...ir.types.literal import Array
from ..torus import Side

MOST_NODES = 1024


@dataclass(frozen=True)
class Torus:
    """A torus of nodes; axes of two nodes have one link between them."""

    shape: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return math.prod(self.shape)

    @cached_property
    def neighbours(self) -> Array:
        """The neighbour of each node in both directions of each axis [nodes, 2 axes]."""
        numbers = np.arange(self.nodes).reshape(self.shape)
        shifted = [np.roll(numbers, -step, axis).ravel() for axis in range(len(self.shape)) for step in (1, -1)]
        return np.stack(shifted, 1)

    def links(self, missing: int | None = None) -> Array:
        """Returns which links exist [nodes, 2 axes]; without the first one of the axis `missing`."""
        exist = np.zeros((self.nodes, 2 * len(self.shape)), bool)
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        for axis, size in enumerate(self.shape):
            exist[:, 2 * axis] = size > 2 or ((size == 2) & (places[axis] == 0))
            exist[:, 2 * axis + 1] = size > 2 or ((size == 2) & (places[axis] == 1))
        if missing is not None:
            other = self.neighbours[0, 2 * missing]
            exist[0, 2 * missing] = exist[other, 2 * missing + 1] = False
        return exist


@dataclass(frozen=True)
class TorusTraffic:
    """The hops of each pair of nodes [from, to], and the busiest link's messages when each node sends one to each."""

    hops: Array
    busiest: float

    @staticmethod
    def of(torus: Torus, missing: int | None = None) -> TorusTraffic:
        """Counts the messages of an all-to-all on a torus."""
        count, around, exist = torus.nodes, torus.neighbours, torus.links(missing)
        hops = np.where(np.eye(count, dtype=bool), 0, -1)
        ways = np.eye(count)
        level = 0
        while (hops < 0).any():
            near = np.where(hops == level, ways, 0.0)
            # A message comes to a node from each neighbour that has a link to it.
            come = np.zeros_like(near)
            for slot in range(around.shape[1]):
                come += near[:, around[:, slot]] * exist[:, slot]
            fresh = (hops < 0) & (come > 0)
            level += 1
            hops[fresh], ways[fresh] = level, come[fresh]
        passed = np.zeros((count, count))  # messages that a node passes on, by their sender
        load = np.zeros(exist.shape)
        for far in range(level, 0, -1):
            here = np.where(hops == far, (1 + passed) / ways, 0.0)
            for slot in range(around.shape[1]):
                before = around[:, slot]
                sent = np.where(hops[:, before] == far - 1, here * ways[:, before], 0.0) * exist[:, slot]
                load[:, slot] += sent.sum(0)
                passed[:, before] += sent
        return TorusTraffic(hops, float(load.max()))


@dataclass(frozen=True)
class Detours:
    """The effect of a missing link of one axis: the share of pairs with longer ways, the most hops that they take more,
    and the shares of bandwidth that an all-to-all of all nodes and an all-reduce along the ring keep.
    """

    axis: int
    longer: float
    most: int
    all_to_all: float
    ring: float


def detours(torus: Torus, axis: int) -> Detours:
    """Computes the cost of a missing link of an axis. The axis has more than two nodes."""
    whole, left = TorusTraffic.of(torus), TorusTraffic.of(torus, axis)
    more = left.hops - whole.hops
    pairs = torus.nodes * (torus.nodes - 1)
    ring = Side(torus.shape[axis], False).rate / Side(torus.shape[axis], True).rate
    return Detours(axis, float((more > 0).sum()) / pairs, int(more.max()), whole.busiest / left.busiest, ring)
