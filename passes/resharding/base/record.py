"""The record of a resharding in a program: which value moved between which tilings, why, and by which plan."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from .moves import ReshardPlan


@dataclass(frozen=True, slots=True)
class Resharding:
    """A value of this global shape that moved from one tiling to another; `cause` as its collectives carry it."""

    cause: str
    shape: Shape
    source: Tiling
    target: Tiling
    plan: ReshardPlan
