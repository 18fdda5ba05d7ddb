"""Costs of collectives over nodes whose devices have a network card each.

NCCL runs a collective of several nodes as rings or trees through all cards at once, while the fast links within the
nodes move what arrives. So the parts of an all-gather enter a node once, divided among the cards of the group's devices
there; the same holds for reduce-scatters and broadcasts, and twice for all-reduces. Of an all-to-all each device
receives what comes from other nodes through its own card. The slower of card and fast link decides.

On three nodes of eight A100 with four cards of 25 GB/s in a node, all-reduces of 128 MB reach 96 GB/s of the 100 GB/s
of its cards (NVIDIA/nccl-tests, issue 119). With a card per device, all-gathers on 8 nodes of H100 reach 384 of 400
(machines/h100.toml).
"""

from __future__ import annotations

from collections.abc import Sequence

from .formulas import Kind
from .links import Link
from .transfer import SECOND, Transfer

_PAIRWISE: tuple[Kind, ...] = ("all-to-all", "ragged-all-to-all")


def over_rails(kind: Kind, levels: Sequence[tuple[Link, int]]) -> Transfer:
    """Returns the cost of a collective whose groups have this many devices along each level of links, fast links first.

    A permute may send all its bytes across nodes, and takes the slowest link.
    """
    used = [level for level in levels if level[1] > 1] or levels[:1]
    slowest = used[0][0]
    for link, _ in used[1:]:
        slowest = slowest.slower(link)
    if kind == "collective-permute":
        return Transfer.over(slowest)
    devices = 1
    for _, count in levels:
        devices *= count
    per_byte, inside = 1 / max(link.bandwidth for link, _ in used), 1  # all passes through a device's fastest link
    for link, count in levels:
        per_byte = max(per_byte, _share(kind, count, inside, devices) / link.bandwidth)
        inside *= count
    return Transfer(slowest.latency * SECOND, per_byte * SECOND)


def _share(kind: Kind, count: int, inside: int, devices: int) -> float:
    """Returns the bytes that a device receives over a level of `count` parts, for each byte that it receives; a part
    has `inside` devices of the group.
    """
    whole = devices / (devices - 1)  # bytes of the group's array for each byte received
    if kind in _PAIRWISE:
        return whole * (count - 1) * inside / devices
    return whole * (count - 1) / count / inside
