"""What collectives move: one formula per kind, by the number of devices in a group.

A device receives (and sends) this much under a bandwidth-optimal algorithm (Chan et al., "Collective communication:
theory, practice, and experience", 2007). `whole` is the larger of operand and result on one device: the result of an
all-gather, the operand of all others. It counts elements or bytes, and so does the answer.
"""

from __future__ import annotations

import math
from typing import Literal

Kind = Literal[
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
    "collective-broadcast",
]  # fmt: skip


# How often a device receives all parts but its own; an all-reduce is a reduce-scatter, and an all-gather after it.
_TIMES: dict[Kind, int] = {
    "all-gather": 1,
    "all-reduce": 2,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "ragged-all-to-all": 1,
    "collective-broadcast": 1,
}


def received(kind: Kind, whole: float, devices: int) -> float:
    """Elements or bytes that each device of a group receives."""
    if kind == "collective-permute":
        return whole if devices > 1 else 0.0
    return _TIMES[kind] * whole * (devices - 1) / devices


def largest_group(whole: float, most: float) -> float:
    """The most devices of a group in which none receives more than `most` by an all-to-all of `whole`."""
    kept = 1.0 - most / whole if whole else 0.0
    return 1.0 / kept if kept > 0.0 else math.inf
