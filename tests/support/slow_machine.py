"""A machine as an embedder writes it: the members without defaults, and no others."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.cost.formulas import Kind
from hloom.cost.machine import Machine, Transfer
from hloom.ir.sharding.digit import Digits
from hloom.ir.types.element_type import ElementType


@dataclass(frozen=True)
class Slow(Machine):
    """An embedder's machine: every collective takes 1 us and 10 ps per byte."""

    def collective(self, kind: Kind, digits: Digits | None, order: tuple[int, ...] | None = None) -> Transfer:
        return Transfer(latency=1e6, per_byte=10.0)

    def memory(self, count: float) -> float:
        return count

    def work(self, points: float, element: ElementType) -> float:
        return points / 100

    @property
    def fastest(self) -> Transfer:
        return Transfer(latency=1e6, per_byte=10.0)
