"""Sharding propagation: completes a few annotations to a sharding for every value.

Digits travel along the factors of sharding rules, forwards and backwards, until nothing changes (the fixed point of the
GSPMD and Shardy papers). Read the modules in this order: `values` (leaves and relations), `agreement` (the offers
within one op), `schedule` (the order), `solve` (the fixed point), `conflicts` (incompatible shardings), `refine`
(improvements), `folds` (equal layers). `annotations` reads the program's shardings and writes the result.

    before:  w = f32[8,4] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
             y = f32[8,4] negate(w)
    after:   y = f32[8,4] negate(w), sharding={mesh['x'=2], [{'x'}, {}]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.diagnostics import CompileError, fail
from ...ir.graph.module import Module, Stage
from ..base import Pass, PassContext, refuse_starts
from .annotations import annotate
from .causes import renew_causes
from .folds import Folds, UnequalLayers, find_folds
from .refine import LIMITS, RADIUS, RefinementLimits, refine
from .solve import note_conflicts, solve
from .values import ValueGraph

__all__ = ["Propagate", "propagation", "solve"]


@dataclass(frozen=True)
class Propagate(Pass):
    """Gives every value a sharding. `strategy` is `basic` or `aggressive` (see `schedule`). With `fold`, only a few of
    many equal layers are solved (see `folds`). The other options limit the search around conflicts (see `refine`).
    """

    name: ClassVar[str] = "propagate"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.GLOBAL})
    produces: ClassVar[Stage | None] = Stage.SHARDED
    strategy: str = "aggressive"
    rounds: int = LIMITS.rounds
    changes: int = LIMITS.changes
    decisions: int = LIMITS.decisions
    fold: bool = True

    def run(self, module: Module, context: PassContext) -> bool:
        if self.strategy not in ("basic", "aggressive"):
            fail(f"there is no strategy '{self.strategy}'", help="strategies: aggressive, basic")
        limits = RefinementLimits(self.rounds, self.changes, self.decisions)
        refuse_starts(module, self.name)
        if not self.folded(module, context, limits):
            _propagated(module, context, self.strategy == "aggressive", limits, Folds())
        return True

    def folded(self, module: Module, context: PassContext, limits: RefinementLimits) -> bool:
        """Solves only some of many equal layers; whether that gives what solving them all gives."""
        found = len(context.diagnostics.found)
        for folds in find_folds(module, RADIUS) if self.fold else ():
            if not folds.counts:
                return False
            try:
                _propagated(module, context, self.strategy == "aggressive", limits, folds)
                return True
            except (UnequalLayers, CompileError):
                del context.diagnostics.found[found:]
        return False


def propagation(module: Module, context: PassContext) -> ValueGraph:
    """Writes a sharding on every value of a GLOBAL module without calls, and returns the solved graph.

    The graph's leaves know the causes of their digits, and it lists the conflicts. The caller sets `module.stage`.
    Raises CompileError.
    """
    refuse_starts(module, Propagate.name)
    graph, is_refined = _propagated(module, context, True, LIMITS, Folds())
    if is_refined:
        renew_causes(graph)
        note_conflicts(graph)
    return graph


def _propagated(
    module: Module, context: PassContext, aggressive: bool, limits: RefinementLimits, folds: Folds
) -> tuple[ValueGraph, bool]:
    """Writes the shardings; returns the graph, and whether refinement left causes and conflicts that are old. Raises
    UnequalLayers.
    """
    graph = ValueGraph(module, context.rules, folds.stands)
    folds.check_depths(graph.depths)
    relations = len(graph.relations)
    annotations = annotate(module, graph, context)
    context.diagnostics.raise_errors()
    if folds.counts and len(graph.relations) != relations:
        raise UnequalLayers  # groups and manual regions span layers
    folds.check_changes(graph, solve(graph, aggressive))
    is_refined = refine(module, graph, annotations.order, context.decider(annotations.mesh.size), limits, folds)
    annotations.write(module, graph)
    return graph, is_refined
