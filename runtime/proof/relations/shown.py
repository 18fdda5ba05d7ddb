"""Shows, for all inputs, which results and values equal the original's: those that agree when both programs run on
terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....ir.diagnostics import CompileError
from ....ir.graph.module import Module
from ....ir.graph.op import NotEvaluable
from ....ir.tools.placement import Placement
from ...evaluator import UnpartitionedProgram
from ...global_arrays import join_outputs
from ...simulator import SimulatedProgram
from ..degrees import chance, largest_degree
from ..field import PRIME, UNDEFINED
from ..oracle import Oracle
from ..verdict import OnTerms, Shown
from .index import Source
from .origin import Search
from .relate import related
from .relation import Kind, Relation
from .symbolic import SymbolicKernels

Array = np.ndarray[Any, Any]

_MOST_RUNS = 4  # whose chances multiply
_SMALL = 1e-6  # a chance that needs no further run


@dataclass
class _Terms:
    """Both programs, ready to run on terms, and their inputs."""

    whole: UnpartitionedProgram
    divided: SimulatedProgram
    inputs: list[Array]
    oracle: Oracle
    kernels: Sequence[SymbolicKernels]

    @classmethod
    def of(cls, original: Module, local: Module, seed: int, number: int = 0) -> _Terms:
        """Raises CompileError or NotEvaluable for programs that cannot run on terms."""
        of_oracle, of_inputs = np.random.SeedSequence((seed, 1 + number)).spawn(2)
        oracle, generator = Oracle(of_oracle), np.random.Generator(np.random.PCG64(of_inputs))
        kernels = [SymbolicKernels(module, oracle) for module in (original, local)]
        whole, divided = UnpartitionedProgram(original, kernels[0]), SimulatedProgram(local, kernels[1])
        leaves = [leaf for p in original.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
        inputs = [generator.integers(0, PRIME, leaf.dims, np.uint64) for leaf in leaves]
        return cls(whole, divided, inputs, oracle, kernels)

    @cached_property
    def expected(self) -> list[Array]:
        """The results of the original."""
        return self.whole.run(self.inputs)

    def known(self) -> list[bool]:
        """Returns, per result of the original, whether inputs determine all its elements: whether it stays the
        same when unknown elements are drawn anew.
        """
        expected, kernels = self.expected, self.kernels[0]
        made, coincidence = deepcopy(self.oracle.made), kernels.coincidence
        again = self.whole.run(self.inputs)
        self.oracle.made, kernels.coincidence = made, coincidence  # as after one run
        return [_same(*both) for both in zip(expected, again, strict=True)]

    def outputs(self) -> list[bool]:
        """Returns, per result, whether all its elements equal the original's."""
        found = self.divided.per_device(self.inputs, poison=True)
        places = enumerate(p for p in self.divided.results if p.shape.is_array)
        return [_same(want, self._joined(found, *place)) for want, place in zip(self.expected, places, strict=True)]

    def _joined(self, found: Sequence[Sequence[Array]], number: int, place: Placement) -> Array | None:
        """A global result; None where the devices that hold an element disagree."""
        program = self.divided
        with suppress(CompileError):
            return join_outputs([[r[number]] for r in found], [place], program.grid, program.executable.kernels)[0]
        return None

    def chance(self, degree: int, outputs: int) -> float:
        """The probability that a wrong result counts as the original's after one run, at most."""
        missed = chance(self.oracle.made, outputs, degree)
        return min(1.0, missed + sum(k.coincidence for k in self.kernels))


def on_terms(original: Module, local: Module, asked: Sequence[bool], seed: int = 0) -> OnTerms | None:
    """The results that are shown for all inputs; None if the programs cannot run on terms, or if none of those that are
    asked for can be among them.
    """
    degrees = [largest_degree(module, on_terms=True) for module in (original, local)]
    elements = sum(leaf.num_elements for leaf in original.entry.root.shape.leaves() if leaf.is_array)
    shown, missed = [True], 1.0
    for number in range(_MOST_RUNS):
        if missed <= _SMALL:
            break
        try:
            terms = _Terms.of(original, local, seed, number)
            if not number and not any(a and b for a, b in zip(asked, terms.known(), strict=True)):
                return None
            found = terms.outputs()
        except (CompileError, NotEvaluable):
            return None
        shown = found if not number else [a and b for a, b in zip(shown, found, strict=True)]
        if None in degrees or not any(shown):
            return OnTerms((False,) * len(shown), 0.0)
        missed *= terms.chance(sum(d or 0 for d in degrees), elements)
    return OnTerms(tuple(shown), missed)


def shown(original: Module, local: Module, seed: int = 0) -> Shown | None:
    """Counts the outputs and values that are shown for all inputs; None if the programs cannot run on terms."""
    try:
        terms = _Terms.of(original, local, seed)
        found = related(terms.whole, terms.divided, terms.inputs, None)
    except (CompileError, NotEvaluable):
        return None
    results = list(Search(found, terms.divided.results).results())
    right = [r for r in results if isinstance(r, Source) and not (r.array == UNDEFINED).any()]
    values = sum(_is_shown(v.relation) for v in found.values)
    return Shown(len(right), len(results), values, len(found.values))


def _is_shown(relation: Relation) -> bool:
    return relation.kind is not Kind.NONE


def _same(want: Array, have: Array | None) -> bool:
    if have is None or want.shape != have.shape:
        return False
    return bool(((want == have) & (want != UNDEFINED)).all())
