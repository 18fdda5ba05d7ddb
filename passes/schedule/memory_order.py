"""Orders a program for little memory: the best of some orders by the live memory of the whole program.

The candidates are the text's order, `by_memory`, `depth_first`, and `soon` (see `orders`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...cost.attention import OutsideOfAttention
from ...cost.memory import peak_memory
from ...cost.seconds import Clock
from ...cost.sizes import sized
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module, Stage, clone_module
from ..base import Pass, PassContext
from .orders import Order, by_memory, depth_first, set_orders, soon

ORDERS: dict[str, Callable[[Computation], Order]] = {"by bytes freed": by_memory, "depth first": depth_first}


@dataclass(frozen=True)
class MemoryOrder(Pass):
    """Orders all computations for the least memory peak; keeps the text's order where none needs less."""

    name: ClassVar[str] = "memory-order"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})
    produces: ClassVar[Stage | None] = Stage.SCHEDULED

    def run(self, module: Module, context: PassContext) -> bool:
        clock = Clock.of(module, context.machine)
        kernels = OutsideOfAttention.on(context.machine)
        before = best = peak_memory(module, kernels)
        found: tuple[Module, str] | None = None
        for new, name in memory_orders(module, {**ORDERS, "as soon as possible": lambda c: soon(c, clock)}):
            peak = peak_memory(new, OutsideOfAttention.on(context.machine))
            if peak < best:
                best, found = peak, (new, name)
        if found is None:
            return False
        module.take(found[0])
        context.diagnostics.remark(f"memory-order: {found[1]}; peak {sized(before)} becomes {sized(best)}")
        return True


def memory_orders(
    module: Module, orders: dict[str, Callable[[Computation], Order]] = ORDERS
) -> Iterator[tuple[Module, str]]:
    """Yields copies of a program in other orders, and their names."""
    for name, order in orders.items():
        new = clone_module(module)
        set_orders(list(new), [order(computation) for computation in new])
        yield new, name
