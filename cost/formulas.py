"""Traffic of collectives: one formula per kind, by the number of devices in a group.

The formulas give the amount that a device receives (and sends) under a bandwidth-optimal algorithm (Chan et al.,
"Collective communication: theory, practice, and experience", 2007). `whole` is the larger of operand and result on one
device: the result of an all-gather, the operand of all others. It counts elements or bytes, and so do the formulas.
"""

from __future__ import annotations

import math
from typing import Literal

Kind = Literal[
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
    "collective-broadcast",
]  # fmt: skip


# How often a device receives all parts but its own. An all-reduce is a reduce-scatter followed by an all-gather.
_TIMES: dict[Kind, int] = {
    "all-gather": 1,
    "all-reduce": 2,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "ragged-all-to-all": 1,
    "collective-broadcast": 1,
}


def received(kind: Kind, whole: float, devices: int) -> float:
    """Returns the elements or bytes that each device of a group receives."""
    if kind == "collective-permute":
        return whole if devices > 1 else 0.0
    return _TIMES[kind] * whole * (devices - 1) / devices


def largest_group(whole: float, most: float) -> float:
    """Returns the largest group in which an all-to-all of `whole` delivers at most `most` to each device."""
    kept = 1.0 - most / whole if whole else 0.0
    return 1.0 / kept if kept > 0.0 else math.inf
