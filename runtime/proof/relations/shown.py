"""Says what holds for all inputs: the values that are related to the original when both programs run on terms."""

from __future__ import annotations

import numpy as np

from ....ir.diagnostics import CompileError
from ....ir.graph.module import Module
from ....ir.graph.op import NotEvaluable
from ...evaluator import UnpartitionedProgram
from ...simulator import SimulatedProgram
from ..field import PRIME, UNDEFINED
from ..oracle import Oracle
from ..verdict import Shown
from .index import Source
from .origin import Search
from .relate import related
from .relation import Kind, Relation
from .symbolic import SymbolicKernels


def shown(original: Module, local: Module, seed: int = 0) -> Shown | None:
    """The outputs and values that are shown for all inputs; None if the programs cannot be run on terms."""
    of_oracle, of_inputs, *unknown = np.random.SeedSequence((seed, 1)).spawn(4)
    oracle, generator = Oracle(of_oracle), np.random.Generator(np.random.PCG64(of_inputs))
    for_original, for_local = (np.random.Generator(np.random.PCG64(s)) for s in unknown)
    try:
        whole = UnpartitionedProgram(original, SymbolicKernels(original, oracle, for_original))
        divided = SimulatedProgram(local, SymbolicKernels(local, oracle, for_local))
        leaves = [leaf for p in original.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
        inputs = [generator.integers(0, PRIME, leaf.dims, np.uint64) for leaf in leaves]
        found = related(whole, divided, inputs, None)
    except (CompileError, NotEvaluable):
        return None
    results = list(Search(found, divided.results).results())
    right = [r for r in results if isinstance(r, Source) and not (r.array == UNDEFINED).any()]
    values = sum(_is_shown(v.relation) for v in found.values)
    return Shown(len(right), len(results), values, len(found.values))


def _is_shown(relation: Relation) -> bool:
    return relation.kind is not Kind.NONE
