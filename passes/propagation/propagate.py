"""Sharding propagation: completes a few annotations to a sharding for every value.

Digits travel along the factors of sharding rules, forwards and backwards, until nothing changes (the fixed point of the
GSPMD and Shardy papers). Read the modules in this order: `values` (leaves and relations), `agreement` (the offers
within one op), `schedule` (the order), `solve` (the fixed point), `conflicts` (incompatible shardings), `refine`
(improvements). `annotations` reads the program's shardings and writes the result.

    before:  w = f32[8,4] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
             y = f32[8,4] negate(w)
    after:   y = f32[8,4] negate(w), sharding={mesh['x'=2], [{'x'}, {}]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.diagnostics import fail
from ...ir.graph.module import Module, Stage
from ..base import Pass, PassContext, refuse_starts
from .annotations import annotate
from .causes import renew_causes
from .refine import LIMITS, RefinementLimits, refine
from .solve import note_conflicts, solve
from .values import ValueGraph

__all__ = ["Propagate", "propagation", "solve"]


@dataclass(frozen=True)
class Propagate(Pass):
    """Gives every value a sharding. `strategy` is `basic` or `aggressive` (see `schedule`); the other options limit the
    search around conflicts (see `refine`).
    """

    name: ClassVar[str] = "propagate"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.GLOBAL})
    produces: ClassVar[Stage | None] = Stage.SHARDED
    strategy: str = "aggressive"
    rounds: int = LIMITS.rounds
    changes: int = LIMITS.changes
    decisions: int = LIMITS.decisions

    def run(self, module: Module, context: PassContext) -> bool:
        if self.strategy not in ("basic", "aggressive"):
            fail(f"there is no strategy '{self.strategy}'", help="strategies: aggressive, basic")
        limits = RefinementLimits(self.rounds, self.changes, self.decisions)
        _propagated(module, context, self.strategy == "aggressive", limits)
        return True


def propagation(module: Module, context: PassContext) -> ValueGraph:
    """Writes a sharding on every value of a GLOBAL module without calls, and returns the solved graph.

    The graph's leaves know the causes of their digits, and it lists the conflicts. The caller sets `module.stage`.
    Raises CompileError.
    """
    graph, is_refined = _propagated(module, context)
    if is_refined:
        renew_causes(graph)
        note_conflicts(graph)
    return graph


def _propagated(
    module: Module, context: PassContext, aggressive: bool = True, limits: RefinementLimits = LIMITS
) -> tuple[ValueGraph, bool]:
    """Writes the shardings; returns the graph, and whether refinement left causes and conflicts that are old."""
    refuse_starts(module, Propagate.name)
    graph = ValueGraph(module, context.rules)
    annotations = annotate(module, graph, context)
    context.diagnostics.raise_errors()
    solve(graph, aggressive)
    is_refined = refine(module, graph, annotations.order, context.decider(annotations.mesh.size), limits)
    annotations.write(module, graph)
    return graph, is_refined
