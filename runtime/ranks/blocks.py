"""Divides the devices of a program among ranks: each rank runs a block of consecutive devices."""

from __future__ import annotations


def devices_of(rank: int, ranks: int, devices: int) -> range:
    """Returns the block of devices that a rank runs. If the division leaves a remainder, the first ranks run one more.
    """
    each, more = divmod(devices, ranks)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))


def ranks_of(ranks: int, devices: int) -> list[int]:
    """Returns the rank of each device."""
    return [rank for rank in range(ranks) for _ in devices_of(rank, ranks, devices)]
